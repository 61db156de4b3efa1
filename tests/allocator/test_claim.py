"""What pods say of their leases, read at the border. Whoever may create pods may write anything there."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mig_spawner.allocator.claim import Claim, device_in, parse_claim
from mig_spawner.allocator.store.codec import claim_from_text, claim_to_text
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import Holder
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest

SLICE = {
    "mig-spawner/user-id": "17",
    "mig-spawner/user-name": "zoë",
    "mig-spawner/server-name": "work",
    "mig-spawner/profile": "1g.10gb+me",
    "mig-spawner/device-uuid": "MIG-1",
    "mig-spawner/gpu-uuid": "GPU-1",
    "mig-spawner/placement": "6:1",
    "mig-spawner/cut": "true",
    "mig-spawner/granted-at": "2026-03-01T13:00:00+01:00",
    "mig-spawner/expires-at": "2026-03-01T14:00:00Z",
}
READ = Claim(
    holder=Holder("17", "work", "zoë"),
    placement=Placement("GPU-1", 6, 1),
    profile=ProfileName(1, 10, "+me"),
    device_uuid="MIG-1",
    node="n1",
    cut=True,
    granted_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    expires_at=datetime(2026, 3, 1, 14, tzinfo=UTC),
)


def test_a_claim_is_read() -> None:
    assert parse_claim(SLICE, "n1") == READ


def test_what_a_pod_need_not_say() -> None:
    """A whole GPU has no profile; KubeSpawner's own words serve for the names; what does not say cut is not destroyed."""
    claim = parse_claim(
        {
            "mig-spawner/user-id": "17",
            "hub.jupyter.org/username": "zoë",
            "hub.jupyter.org/servername": "work",
            "mig-spawner/profile": "",
            "mig-spawner/device-uuid": "GPU-1",
            "mig-spawner/gpu-uuid": "GPU-1",
            "mig-spawner/placement": "0:8",
            "mig-spawner/expires-at": "",
        },
        None,
    )
    assert claim == Claim(Holder("17", "work", "zoë"), Placement("GPU-1", 0, 8), None, "GPU-1")


@pytest.mark.parametrize("claim", [None, READ, Claim(Holder("1"), Placement("GPU-1", 0, 8), None, "GPU-1")])
def test_a_claim_is_kept_as_it_is(claim: Claim | None) -> None:
    assert claim_from_text(claim_to_text(claim)) == claim


@pytest.mark.parametrize("name", ["user-id", "profile", "device-uuid", "gpu-uuid", "placement"])
def test_what_is_missing_is_named(name: str) -> None:
    said = {key: value for key, value in SLICE.items() if key != f"mig-spawner/{name}"}
    with pytest.raises(InvalidRequest, match=f"mig-spawner/{name}"):
        parse_claim(said, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user-id", ""),
        ("user-id", "1" * 256),
        ("user-id", "1\n2"),
        ("user-name", "\x1b[31m"),
        ("server-name", "s" * 300),
        ("profile", "huge"),
        ("profile", "1c.3g.40gb"),
        ("device-uuid", ""),
        ("device-uuid", "all"),
        ("device-uuid", "MIG-1,MIG-2"),
        ("device-uuid", "MIG-" + "1" * 200_000),
        ("gpu-uuid", "MIG-1"),
        ("gpu-uuid", "GPU-<script>"),
        ("placement", "6"),
        ("placement", "-1:2"),
        ("placement", "0:0"),
        ("placement", "60:9"),
        ("placement", "\u0663:\u0661"),
        ("placement", "6:1\n"),
        ("cut", "yes"),
        ("granted-at", "yesterday"),
        ("granted-at", "2026-03-01T12:00:00"),
        ("expires-at", "0001-01-01T00:00:00+14:00"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_short_sentence(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_claim(SLICE | {f"mig-spawner/{name}": value}, "n1")
    assert 10 < len(str(refused.value)) < 250
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("MIG-1", "MIG-1"),
        ("GPU-8/7-0", "GPU-8/7-0"),
        ("MIG-GPU-1/7/0", "MIG-GPU-1/7/0"),
        (None, None),
        ("", None),
        ("void", None),
        ("all", None),
        ("0", None),
        ("MIG-1,MIG-2", None),
    ],
)
def test_the_one_device_that_a_value_names(text: str | None, device: str | None) -> None:
    assert device_in(text) == device
