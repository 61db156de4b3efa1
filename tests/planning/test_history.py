"""The ledger's history as arrivals: simulated and planned for from the command line."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner

from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.cli import main
from mig_spawner.cli.history import history
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import EndReason, Granted, PodFate
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.lease import HolderDocument, LeaseRequest
from mig_spawner.wire.node import NodeReport
from tests.allocator.rig import Clock, gpu_document

FOUR = SliceRequest(ProfileName(4, 24))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger of one A30: somebody had it for ten minutes, and somebody else wanted it meanwhile in vain."""
    url, clock = f"sqlite:///{tmp_path / 'ledger.sqlite'}", Clock()
    store = SQLStore(url, clock=clock)
    store.open()
    desk = Desk(store, Setting(node_silent_after=timedelta(days=9)), lambda steps: None)
    service = LeaseService(desk)
    gpus = (gpu_document(find_model("a30-24gb").gpu("GPU-0")),)
    with store.writing() as tx:
        tx.put_report("n1", NodeReport(agent_version="t", boot_id="b", applied_generation=0, simulated=True, gpus=gpus))

    def ask(user: str) -> str:
        holder = HolderDocument(user_id=user, user_name=user)
        wanted = LeaseRequest(holder=holder, accelerator_partition_type="4g.24gb", wait_budget=0)
        return service.acquire(wanted, who="t").document.lease_id

    first = ask("ann")
    clock.move(60)
    ask("bob")
    clock.move(540)
    with desk.writing("t") as ledger:
        lease = ledger.tx.lease(first)
        assert isinstance(lease, Granted)
        released = ledger.move(lease, transition.release(lease, EndReason.STOPPED, PodFate.GONE, ledger.now), "t")
        ledger.move(released, transition.close(released, ledger.now), "t")
    store.close()
    return url


def test_who_was_served_and_who_was_not(url: str) -> None:
    ann, bob = history(url)
    assert (ann.request, ann.holder, ann.at) == (FOUR, "ann/", 0)
    assert ann.duration == pytest.approx(600, abs=1)
    assert bob.at == pytest.approx(60, abs=1)
    assert bob.duration == ann.duration, "as long as those who asked for the same"
    assert bob.wait == 0
    assert ann.wait < inf


def test_both_verbs_take_it(url: str) -> None:
    arguments = ["--from-ledger", url, "--gpu", "a30-24gb:4", "--quiet"]
    simulated = CliRunner().invoke(main, ["simulate", *arguments, "--policy", "best-fit", "--csv"])
    assert simulated.exit_code == 0, simulated.output
    assert simulated.stdout.splitlines()[1].startswith("ledger,best-fit,dynamic,refuse,demand,")
    planned = CliRunner().invoke(main, ["plan", *arguments, "--no-trial"])
    assert planned.exit_code == 0, planned.output
    assert "4g.24gb = 2/h x 0.16" in planned.stdout


def test_a_ledger_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none.sqlite'}"
    with pytest.raises(InvalidRequest, match="no ledger"):
        history(url)
    assert not list(tmp_path.iterdir())
    store = SQLStore(url)
    store.open()
    store.close()
    with pytest.raises(InvalidRequest, match="no leases yet"):
        history(url)
