"""Whatever is there and whatever is desired, repeated plan and apply leads there, and touches nothing it must not touch."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from hypothesis import event, given, settings
from hypothesis import strategies as st

from mig_spawner.agent.driver.base import Instance
from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.plan import Create, Destroy, Step, SwitchMode, plan
from mig_spawner.domain.gpu import GPU, Layout, Profile
from mig_spawner.errors import DriverError
from mig_spawner.testing.gpu import SimulatedNode, Verb, find_model
from mig_spawner.testing.gpu.fault import ErrorKind
from mig_spawner.wire.node import DesiredInstance, DesiredNode, DesiredWhole, DestroyableInstance

MODELS = ["a30-24gb", "a100-80gb", "h100-80gb", "rtx-pro-6000"]
FAULTS = st.lists(st.tuples(st.sampled_from(Verb), st.sampled_from(ErrorKind)), max_size=6)
BOOLEANS = st.booleans()
ROUNDS = 25
"""More than any scene needs, with a step a round and every fault."""

Place = tuple[Profile, int]


class Scene:
    """A GPU on which foreign instances, remains of ended leases and half-made ones lie, and what is desired there."""

    def __init__(self, data: st.DataObject, model: str) -> None:
        self.node = SimulatedNode("node-a", [model])
        self.driver = FakeDriver(self.node)
        self.observer = Observer(self.driver, dynamic=True)
        (self.uuid,) = self.node.gpu_uuids()
        gpu = find_model(model).gpu(self.uuid)
        self.foreign = _places(data, Layout(gpu), 2)
        self.remains = _places(data, _layout(gpu, self.foreign), 3)
        # Remains go before anything is made, so what is desired may lie where they are.
        self.wanted = _places(data, _layout(gpu, self.foreign), 4)
        self.whole = data.draw(BOOLEANS) and not (self.foreign or self.wanted)
        self.leaving = [p for p in self.remains if p not in self.wanted]
        mig_enabled: bool = data.draw(BOOLEANS)
        if mig_enabled or self.foreign or self.remains:
            self.node.set_mig_mode(self.uuid, True)
        for profile, start in (*self.foreign, *self.remains):
            made = self.driver.create(self.uuid, profile.profile_id, start, profile.size)
            foreign = (profile, start) in self.foreign
            count = data.draw(st.sampled_from([0, 1, None] if foreign else [0, 0, 1]))
            self.node.set_processes(str(made.mig_uuid), count)
        self.half_made = data.draw(BOOLEANS) and bool(self.wanted)
        if self.half_made:
            profile, start = self.wanted[0]
            with suppress(DriverError):  # the place, or the engines, may be taken by remains
                self.node.create_gpu_instance(self.uuid, profile.profile_id, start, profile.size)

    @property
    def desired(self) -> DesiredNode:
        return DesiredNode(
            generation=1,
            instances=tuple(
                DesiredInstance(lease_id=f"l{n}", gpu_uuid=self.uuid, profile_id=p.profile_id, start=s, size=p.size)
                for n, (p, s) in enumerate(self.wanted)
            ),
            whole=(DesiredWhole(lease_id="w", gpu_uuid=self.uuid),) if self.whole else (),
            destroy=tuple(
                DestroyableInstance(gpu_uuid=self.uuid, profile_id=p.profile_id, start=s, size=p.size)
                for p, s in self.remains
            ),
        )

    def there(self) -> set[tuple[int, int, bool]]:
        """Profile, start and whether it is whole, of all that is on the GPU."""
        (board,) = self.node.snapshot().boards
        return {(i.profile_id, i.start, i.device_index is not None) for i in board.instances}

    def untouchable(self) -> set[tuple[int, int, bool]]:
        """What nobody may touch now: what is foreign, and what has processes or may have some."""
        (board,) = self.node.snapshot().boards
        busy = {(i.profile_id, i.start, True) for i in board.instances if i.processes != 0}
        return busy | _marks(self.foreign)

    def work(self, rounds: int) -> None:
        """Plan and apply so many rounds, a step in each; what failed is tried again when everything else was."""
        untouchable = self.untouchable()
        tried: set[Step] = set()
        for _ in range(rounds):
            steps = plan(self.observer.observe(), self.desired).steps
            step = next((s for s in steps if s not in tried), None)
            tried = set() if step is None else tried | {step}
            if step is not None:
                with suppress(DriverError):
                    self.apply(step)
            elif not steps and not self.node.snapshot().faults:
                return
            assert untouchable <= self.there(), "nothing foreign or busy is touched, on the way as little as at the end"

    def reached(self) -> bool:
        """Whether there is nothing left to do."""
        agenda = plan(self.observer.observe(), self.desired)
        return not agenda.steps and not agenda.failures

    def apply(self, step: Step) -> None:
        match step:
            case Destroy(gpu_uuid, i):
                self.driver.destroy(
                    Instance(
                        gpu_uuid, i.gpu_instance_id, i.profile_id, i.start, i.size, i.mig_uuid, i.mig_uuid is not None
                    )
                )
            case SwitchMode(gpu_uuid, enabled):
                self.driver.set_mig_mode(gpu_uuid, enabled)
            case Create(gpu_uuid, profile_id, start, size):
                self.driver.create(gpu_uuid, profile_id, start, size)


def _places(data: st.DataObject, layout: Layout, most: int) -> list[Place]:
    places: list[Place] = []
    for _ in range(data.draw(st.integers(0, most))):
        free = [(p, s) for p in layout.gpu.profiles for s in layout.starts(p)]
        if free:
            profile, start = data.draw(st.sampled_from(free))
            layout = layout.with_instance(profile, start)
            places.append((profile, start))
    return places


def _layout(gpu: GPU, places: Iterable[Place]) -> Layout:
    layout = Layout(gpu)
    for profile, start in places:
        layout = layout.with_instance(profile, start)
    return layout


def _marks(places: Iterable[Place]) -> set[tuple[int, int, bool]]:
    return {(p.profile_id, s, True) for p, s in places}


@settings(max_examples=100, deadline=None)
@given(data=st.data(), model=st.sampled_from(MODELS), faults=FAULTS)
def test_plan_and_apply_reach_what_is_desired(
    data: st.DataObject, model: str, faults: list[tuple[Verb, ErrorKind]]
) -> None:
    scene = Scene(data, model)
    scene.observer.observe()
    for verb, kind in faults:
        scene.node.fail_next(verb, kind)
    scene.work(ROUNDS)
    scene.node.fail_no_more()
    scene.work(ROUNDS)
    busy = [p for p in scene.leaving if _marks([p]) <= scene.untouchable()]
    event(f"busy remains: {bool(busy)}, half-made: {scene.half_made}")
    assert busy or scene.reached()
    for profile, start in busy:
        # Its process ends at last. Then everything can become as desired.
        place = (profile.profile_id, start)
        (found,) = (i for i in scene.driver.list_instances(scene.uuid) if (i.profile_id, i.start) == place)
        scene.node.set_processes(str(found.mig_uuid), 0)
    scene.work(ROUNDS)
    assert scene.reached()
    goal = _marks([*scene.foreign, *scene.wanted])
    assert scene.there() == goal
    assert scene.node.read_gpu(scene.uuid)[1] is not True or not scene.whole
    assert plan(scene.observer.observe(), scene.desired).steps == [], "a plan for what is so already is empty"
