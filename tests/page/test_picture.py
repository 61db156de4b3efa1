"""What a GPU looks like: every memory slice of its grid stands in exactly one piece, and each piece says what it is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mig_spawner.allocator.fleet import Taken, node_trouble, state_of
from mig_spawner.allocator.page.picture import GPUPicture, Kind, Occupant, picture
from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.domain.gpu import Placement
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.node import DesiredNode, Health, NodeReport
from tests.allocator.rig import EPOCH, Board

SILENT_AFTER = timedelta(seconds=60)


def seen(board: Board, *occupants: Occupant, cordoned: bool = False) -> GPUPicture:
    """The picture of a board whose node has just reported."""
    document = board.document()
    report = NodeReport(agent_version="test", boot_id="b", gpus=(document,))
    uuid = board.gpu.gpu_uuid
    node = NodeRecord("n1", report, {uuid: document.to_domain()}, EPOCH, DesiredNode(generation=1), cordoned)
    taken = [Taken(o.placement, None, cut=o.kind is not Kind.POD) for o in occupants]
    state = state_of(node, document, taken, lambda _: False, node_trouble(node, EPOCH, SILENT_AFTER))
    return picture(state, document, occupants)


def board(model: str = "a100-80gb", **options: object) -> Board:
    return Board(find_model(model).gpu("GPU-1"), **options)  # type: ignore[arg-type]


def kinds(gpu: GPUPicture) -> list[str]:
    return [f"{piece.slices} {piece.kind}" for piece in gpu.pieces]


@pytest.mark.parametrize("model", ["a100-80gb", "a30", "h100-80gb"])
def test_an_empty_gpu_is_free_and_says_what_can_be_cut(model: str) -> None:
    gpu = seen(board(model))
    assert {piece.kind for piece in gpu.pieces} == {Kind.FREE}
    assert gpu.free == gpu.grid == len(gpu.pieces)
    assert gpu.whole
    cuts = {cut.profile: cut.count for cut in gpu.cuts}
    assert cuts["1g.6gb" if model == "a30" else "1g.10gb"] == (4 if model == "a30" else 7)


def test_a_lease_shows_whose_it_is_and_what_is_left() -> None:
    gpu = seen(board(), Occupant(Placement("GPU-1", 0, 4), Kind.ACTIVE, "3g.40gb", "ann", "id1"))
    assert kinds(gpu) == ["0 to 3 active", "4 free", "5 free", "6 free", "7 free"]
    assert (gpu.pieces[0].who, gpu.pieces[0].what) == ("ann", "3g.40gb")
    assert not gpu.whole
    assert "7g.80gb" not in {cut.profile for cut in gpu.cuts}


def test_partitions_of_an_admin_are_idle_only_when_that_is_known() -> None:
    fixed = board("a30", dynamic=False)
    fixed.add("1g.6gb", 0)
    fixed.add("1g.6gb", 1, processes=2)
    fixed.add("1g.6gb", 2, processes=None)
    fixed.add("1g.6gb", 3, mig_uuid=None)
    gpu = seen(fixed)
    assert kinds(gpu) == ["0 idle", "1 foreign", "2 foreign", "3 foreign"]
    notes = [piece.note for piece in gpu.pieces]
    assert notes == [
        "",
        "2 processes on it",
        "whether a process runs on it is not known",
        "half-made: it has no compute instance",
    ]
    assert gpu.cuts == ()


def test_where_nothing_is_granted_nothing_is_free() -> None:
    gpu = seen(board(), cordoned=True)
    assert {piece.kind for piece in gpu.pieces} == {Kind.STUCK}
    assert gpu.trouble == "node n1 is cordoned"
    assert gpu.cuts == ()
    assert "bad" in seen(board(health=Health.BAD)).trouble


def test_a_process_on_an_uncut_gpu_makes_it_used() -> None:
    gpu = seen(board(mig_enabled=False, processes=1))
    assert {piece.kind for piece in gpu.pieces} == {Kind.FOREIGN}
    assert gpu.mode == "MIG off, cut on demand"


@given(
    places=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 8)), max_size=6),
    standing=st.lists(st.sampled_from(range(7)), max_size=5, unique=True),
)
def test_every_slice_stands_in_exactly_one_piece(places: list[tuple[int, int]], standing: list[int]) -> None:
    here = board(dynamic=False)
    for start in standing:
        here.add("1g.10gb", start)
    occupants = [Occupant(Placement("GPU-1", start, size), Kind.ACTIVE) for start, size in places]
    gpu = seen(here, *occupants)
    covered = [at for piece in gpu.pieces for at in range(piece.start, piece.start + piece.size)]
    assert covered == list(range(gpu.grid))
