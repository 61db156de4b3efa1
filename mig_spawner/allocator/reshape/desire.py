"""What agents are told of proposals, and on which GPUs nothing is granted meanwhile: both stand in the desired state of their node."""

from __future__ import annotations

from collections.abc import Iterable

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.domain.reshape import Place, Reshape, ReshapeState
from mig_spawner.wire.node import DesiredLayout, DesiredPlace


def write_layouts(ledger: Ledger, node: str) -> None:
    """Write what a node's agent is to cut anew, where it differs, under a new generation. What is granted next goes by it."""
    record = ledger.nodes.get(node)
    if record is None:
        return
    reshapes = ledger.tx.open_reshapes(node=node)
    layouts = tuple(layout for reshape in reshapes if (layout := desired_layout(ledger, reshape)) is not None)
    held = tuple(sorted(reshape.gpu_uuid for reshape in reshapes if _is_held(ledger, reshape)))
    desired = record.desired.model_copy(update={"layouts": layouts, "held": held})
    if desired != record.desired:
        generation = ledger.tx.next_generation()
        ledger.tx.put_desired(node, desired.model_copy(update={"generation": generation}))
        ledger.forget()


def desired_layout(ledger: Ledger, reshape: Reshape) -> DesiredLayout | None:
    """What the agent is told of a proposal now; None for nothing."""
    match reshape.state:
        case ReshapeState.APPLYING:
            return _layout(reshape.gpu_uuid, reshape.remove, reshape.make)
        case ReshapeState.APPLIED if reshape.standing:
            return _layout(reshape.gpu_uuid, reshape.remove, reshape.make)
        case ReshapeState.RETURNING if can_return(ledger, reshape):
            return _layout(reshape.gpu_uuid, reshape.make, reshape.remove)
        case ReshapeState.RETURNING if reshape.standing:
            return _layout(reshape.gpu_uuid, reshape.remove, reshape.make)
        case _:
            return None


def _layout(gpu_uuid: str, remove: Iterable[Place], make: Iterable[Place]) -> DesiredLayout:
    return DesiredLayout(gpu_uuid=gpu_uuid, remove=_places(remove), make=_places(make))


def _places(places: Iterable[Place]) -> tuple[DesiredPlace, ...]:
    return tuple(DesiredPlace(profile_id=p.profile_id, start=p.start, size=p.size) for p in places)


def _is_held(ledger: Ledger, reshape: Reshape) -> bool:
    """Whether nothing may be granted on its GPU: it is being cut, or does not look as it should, after a boot say."""
    if reshape.state is ReshapeState.APPLIED:
        return reshape.standing and not is_cut(ledger, reshape)
    return reshape.state in (ReshapeState.APPLYING, ReshapeState.RETURNING, ReshapeState.WITHDRAWING)


def is_cut(ledger: Ledger, reshape: Reshape, *, back: bool = False) -> bool:
    """Whether the newest report shows the GPU as the proposal has it, or (`back`) as it was before."""
    gone, made = (reshape.make, reshape.remove) if back else (reshape.remove, reshape.make)
    gpu = ledger.reported_gpu(reshape.node, reshape.gpu_uuid)
    if gpu is None:
        return False
    there = {(i.profile_id, i.start, i.size): i.mig_uuid for i in gpu.instances}
    return all(there.get(key(place)) is not None for place in made) and not any(key(place) in there for place in gone)


def key(place: Place) -> tuple[int, int, int]:
    """A place as reports have it."""
    return place.profile_id, place.start, place.size


def can_return(ledger: Ledger, reshape: Reshape) -> bool:
    """Whether nothing is in the way of cutting a GPU as before: what was made is idle, and what had gone has room."""
    if is_cut(ledger, reshape, back=True):
        return True
    state = next((s for s in ledger.gpus_of(reshape.node) if s.gpu.gpu_uuid == reshape.gpu_uuid), None)
    if state is None:
        return False
    made = {key(place) for place in reshape.make}
    in_the_way = state.layout.mask
    for device in state.devices:
        place = device.placement
        if device.idle and (device.profile.profile_id, place.start, place.size) in made:
            in_the_way &= ~place.mask
    return not any(place.mask & in_the_way for place in (*reshape.make, *reshape.remove))
