"""Many at once: 300 acquires for seven slices, over real HTTP, on one allocator and on two that share a ledger."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from urllib.parse import urlsplit

import pytest

from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRequest
from tests.allocator.conftest import MakeRig
from tests.allocator.process import AllocatorProcess
from tests.allocator.rig import SERVICE_TOKEN, Rig

HOLDERS = 300
SLICES = 7


async def _acquire(url: str, user: str) -> LeaseDocument:
    """One acquire on a connection of its own: a client's pool would send them a few at a time."""
    to = urlsplit(url)
    request = LeaseRequest(holder=HolderDocument(user_id=user), accelerator_partition_type="1g.10gb")
    body = request.model_dump_json().encode()
    head = (
        f"POST {to.path.rstrip('/')}/api/v1/leases HTTP/1.1\r\nHost: {to.netloc}\r\nAuthorization: Bearer {SERVICE_TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(to.hostname, to.port)
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    status, _, rest = answer.partition(b"\r\n")
    assert b" 200 " in status, answer
    return LeaseDocument.model_validate_json(rest.partition(b"\r\n\r\n")[2])


async def _storm(urls: list[str], seed: int) -> list[LeaseDocument]:
    """Everybody asks at once, some of them twice, in an order that the seed decides."""
    order = [str(holder) for holder in range(HOLDERS)]
    order += random.Random(seed).sample(order, 10)
    random.Random(seed).shuffle(order)
    return await asyncio.gather(*(_acquire(urls[i % len(urls)], user) for i, user in enumerate(order)))


def _granted_once(leases: list[LeaseDocument]) -> None:
    by_id = {lease.lease_id: lease for lease in leases}
    assert len(by_id) == HOLDERS
    granted = [lease.placement for lease in by_id.values() if lease.placement is not None]
    assert len(granted) == SLICES
    taken = Counter((p.gpu_uuid, s) for p in granted for s in range(p.start, p.start + p.size))
    assert max(taken.values()) == 1


@pytest.mark.parametrize("seed", range(17))
async def test_300_ask_at_once_for_seven_slices(rig: Rig, seed: int) -> None:
    await rig.node()
    _granted_once(await _storm([rig.app.url], seed))


@pytest.mark.parametrize("seed", range(17, 20))
async def test_300_ask_two_processes_at_once(make_rig: MakeRig, seed: int) -> None:
    rig = await make_rig(clock=None)
    await rig.node()
    async with AllocatorProcess(rig.database, rig.tokens) as other:
        _granted_once(await _storm([rig.app.url, other.url], seed))
