"""Making a declared layout: what is decided, that it is whole or not at all, and what the command says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.keeper import Keeper
from mig_spawner.agent.layout import Outcome, apply, not_in_force, planned
from mig_spawner.agent.layout_file import layout_for, load_layouts
from mig_spawner.cli import main
from mig_spawner.domain.layout import NamedLayout, read
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu import SimulatedNode, Verb
from mig_spawner.testing.gpu.fault import ErrorKind
from mig_spawner.wire.node import Health

TWO, THREE = ProfileName(2, 20), ProfileName(3, 40)
TEACHING = {"gpus": "all", "mig": True, "instances": ["3g.40gb@4", "1g.10gb@0"]}
UNCUT = {"gpus": "all", "mig": False}


def layout(*parts: object) -> NamedLayout:
    return read({"layouts": {"mine": list(parts)}}, load=str).declaration.layouts["mine"]


class Bench:
    """Simulated GPUs and what reads them."""

    def __init__(self, *models: str) -> None:
        self.node = SimulatedNode("node-a", models or ("a100-80gb",))
        self.driver = FakeDriver(self.node)
        self.observer = Observer(self.driver, dynamic=True)
        self.gpu = self.node.gpu_uuids()[0]

    def steps(self, wanted: NamedLayout, *, replace: bool = False) -> list[str]:
        found, _ = planned(self.observer.observe(), wanted, replace=replace)
        return [str(step) for change in found for step in change.steps] + [c.refusal for c in found if c.refusal]

    def apply(self, wanted: NamedLayout, *, replace: bool = False) -> Outcome:
        found, _ = planned(self.observer.observe(), wanted, replace=replace)

        def confirm() -> str:
            return " ".join(not_in_force(self.observer.observe(), wanted).values())

        return apply(self.driver, self.observer, found, confirm=confirm)

    def there(self, index: int = 0) -> list[tuple[str, int]] | None:
        gpu = self.node.gpu_uuids()[index]
        if not self.node.read_gpu(gpu)[1]:
            return None
        return sorted((str(i.profile.name), i.placement.start) for i in self.node.instances(gpu))


def test_an_empty_gpu_is_cut_and_then_there_is_nothing_to_do() -> None:
    bench, wanted = Bench(), layout(TEACHING)
    assert bench.steps(wanted) == [
        "switch MIG mode on",
        "create profile 19 at 0:1",
        "create profile 9 at 4:4",
    ]
    assert bench.apply(wanted).failure == ""
    assert bench.there() == [("1g.10gb", 0), ("3g.40gb", 4)]
    assert bench.steps(wanted) == []


def test_what_is_not_in_the_layout_stays_unless_it_may_be_replaced() -> None:
    bench, wanted = Bench(), layout(TEACHING)
    (made,) = bench.node.cut(bench.gpu, [TWO])
    start = made.placement.start
    assert bench.steps(wanted) == [
        f"2g.20gb at {start}:2 is there and not in the layout. Say that it may be replaced, or declare it."
    ]
    assert bench.apply(wanted, replace=True).failure == ""
    assert bench.there() == [("1g.10gb", 0), ("3g.40gb", 4)]


@pytest.mark.parametrize("count", [1, None])
def test_what_is_used_or_may_be_is_never_replaced(count: int | None) -> None:
    bench = Bench()
    (made,) = bench.node.cut(bench.gpu, [TWO])
    bench.node.set_processes(str(made.mig_uuid), count)
    for wanted in (layout(TEACHING), layout(UNCUT)):
        (refusal,) = bench.steps(wanted, replace=True)
        assert "is in the way, and " in refusal
    assert bench.there() == [("2g.20gb", made.placement.start)]


def test_a_neighbour_in_the_layout_keeps_its_device_and_its_processes() -> None:
    bench, wanted = Bench(), layout(TEACHING)
    bench.apply(layout({"gpus": "all", "mig": True, "instances": ["1g.10gb@0", "1g.10gb@6"]}))
    kept = next(i for i in bench.node.instances(bench.gpu) if i.placement.start == 0)
    bench.node.set_processes(str(kept.mig_uuid), 3)
    assert bench.apply(wanted, replace=True).failure == ""
    assert kept.mig_uuid in {i.mig_uuid for i in bench.node.instances(bench.gpu)}
    assert bench.node.processes(bench.gpu, str(kept.mig_uuid)) == 3


def test_a_busy_uncut_gpu_and_one_without_mig_are_refused() -> None:
    bench = Bench()
    bench.node.set_processes(bench.gpu, 1)
    assert bench.steps(layout(TEACHING)) == [
        "A process runs on it, or that cannot be known, so its MIG mode cannot change."
    ]
    bench.node.wear(bench.gpu, memory_errors=1)
    assert bench.steps(layout(TEACHING))[0].startswith("It is draining: 1 memory error")


@pytest.mark.parametrize("verb", [Verb.CREATE_GPU_INSTANCE, Verb.CREATE_COMPUTE_INSTANCE], ids=str)
def test_what_fails_half_way_is_put_back_on_every_gpu(verb: Verb) -> None:
    bench = Bench("h100-80gb", "h100-80gb")
    first, second = bench.node.gpu_uuids()
    bench.node.cut(first, [THREE])
    before = [bench.there(0), bench.there(1)]
    bench.node.fail_next(verb, ErrorKind.INSUFFICIENT_RESOURCES, gpu_uuid=second)
    outcome = bench.apply(layout({"gpus": "all", "mig": True, "instances": {"1g.10gb": 2}}), replace=True)
    assert "told to fail" in outcome.failure
    assert outcome.left == []
    assert [bench.there(0), bench.there(1)] == before


def test_what_cannot_be_put_back_is_told() -> None:
    bench = Bench()
    bench.node.fail_next(Verb.CREATE_COMPUTE_INSTANCE)
    bench.node.fail_next(Verb.DESTROY_GPU_INSTANCE, times=2)
    outcome = bench.apply(layout(TEACHING))
    assert outcome.failure
    assert len(outcome.left) == 1
    assert outcome.left[0].startswith("Could not switch MIG mode off")


def test_it_is_in_force_when_it_was_seen_to_be() -> None:
    """A driver that says yes and does nothing is not believed."""

    class Polite(FakeDriver):
        def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
            pass

    bench, wanted = Bench(), layout({"gpus": "all", "mig": True, "instances": {}})
    bench.driver = Polite(bench.node)
    outcome = bench.apply(wanted)
    assert outcome.failure == "Still to do: switch MIG mode on."
    assert bench.there() is None


def test_a_keeper_makes_the_layout_after_each_boot_and_destroys_nothing() -> None:
    bench = Bench("h100-80gb", "h100-80gb")
    _, second = bench.node.gpu_uuids()
    foreign = bench.node.cut(second, [ProfileName(7, 80)])
    keeper = Keeper(bench.driver, bench.observer, layout(TEACHING))
    first, other = keeper.observe()
    assert (first.health, len(first.instances)) == (Health.OK, 2)
    assert other.health is Health.DRAINING
    assert "Its layout mine is not in force" in other.health_reason
    assert [i.mig_uuid for i in other.instances] == [foreign[0].mig_uuid]
    bench.node.reboot()
    assert [g.health for g in keeper.observe()] == [Health.OK, Health.OK]
    assert bench.there(0) == bench.there(1) == [("1g.10gb", 0), ("3g.40gb", 4)]


def test_a_mode_that_was_lost_with_a_boot_and_cannot_be_had_again_is_said() -> None:
    bench = Bench("h100-80gb")
    keeper = Keeper(bench.driver, bench.observer, layout(TEACHING))
    assert keeper.observe()[0].health is Health.OK
    bench.node.reboot()
    bench.node.fail_next(Verb.SET_MIG_MODE, ErrorKind.NO_PERMISSION)
    (lost,) = keeper.observe()
    assert (lost.mig_enabled, lost.instances, lost.health) == (False, (), Health.DRAINING)
    assert "Its layout mine is not in force" in lost.health_reason
    assert keeper.observe()[0].health is Health.OK


def test_a_node_finds_its_layout_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "layouts.yaml"
    file.write_text("layouts: {mine: [{gpus: all, mig: false}]}\nnodes: {node-a: mine}\n")
    assert layout_for(file, "node-a").name == "mine"
    with pytest.raises(InvalidRequest, match="gives node node-b no layout"):
        layout_for(file, "node-b")
    file.write_text("layouts: {mine: [{gpus: 7, mig: false}]}\nnodes: {node-a: mine}\n")
    with pytest.raises(InvalidRequest, match=r"write \[7\].*There is no layout 'mine'"):
        layout_for(file, "node-a")
    file.write_text("layouts: [")
    with pytest.raises(InvalidRequest, match=r"is no YAML: .* in line 1"):
        load_layouts(file)
    with pytest.raises(InvalidRequest, match="No such file"):
        load_layouts(tmp_path / "none.yaml")


# -- the command -------------------------------------------------------------------------------------------------------

DATA = Path(__file__).parents[1] / "domain" / "layouts"


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["layout", *map(str, words)], catch_exceptions=False)


@pytest.fixture
def here(tmp_path: Path) -> Sequence[str]:
    """Options that name simulated GPUs on disk."""
    state = tmp_path / "state.json"
    SimulatedNode("node-a", ["a100-80gb", "a30-24gb"], state_file=state)
    return ("--driver=fake", f"--state-file={state}")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    file = tmp_path / "ours.yaml"
    file.write_text(
        "layouts:\n  mine:\n    - {gpus: [0], mig: true, instances: [3g.40gb@4, 1g.10gb@0]}\n    - {gpus: [1], mig: false}\n"
        "nodes: {node-a: mine}\n"
    )
    return file


def test_check_says_of_each_layout_whether_it_can_be_had() -> None:
    good = run("check", DATA / "default.yaml")
    assert good.exit_code == 0
    assert "5 layouts can be had" in good.output
    bad = run("check", DATA / "fragment.yaml", DATA / "scalar-devices.yaml")
    assert bad.exit_code == 3
    assert "put 'version: v1' and 'mig-configs:' before it" in bad.output
    assert "write [7]" in bad.output


def test_check_for_a_node_and_for_any_model(tmp_path: Path) -> None:
    file = tmp_path / "me.yaml"
    file.write_text(
        'version: v1\nmig-configs: {me: [{devices: all, mig-enabled: true, mig-devices: {"2g.12gb+me": 2}}]}\n'
    )
    said = run("check", file)
    assert (
        said.exit_code,
        "No known model can have it. 2 x 2g.12gb+me do not fit on NVIDIA A30: it holds 1." in said.output,
    ) == (
        3,
        True,
    )
    assert "There is no GPU 1 here" in run("check", DATA / "helm-values.yaml", "--gpu", "a100-80gb").output
    assert run("check", DATA / "helm-values.yaml", "--gpu", "a100-80gb:2").exit_code == 0


def test_import_and_export_are_the_same_file_again(tmp_path: Path) -> None:
    ours = tmp_path / "ours.yaml"
    ours.write_text(run("import", DATA / "configmap.yaml").output)
    back = tmp_path / "back.yaml"
    back.write_text(run("export", ours, "--config-map", "custom").output)
    assert load_layouts(back).declaration == load_layouts(DATA / "configmap.yaml").declaration


def test_apply_shows_first_then_does_and_export_tells_what_is_there(ours: Path, here: Sequence[str]) -> None:
    dry = run("apply", ours, "--node=node-a", "--dry-run", *here)
    assert dry.exit_code == 0
    assert dry.output.count("create profile") == 2
    assert "uncut" in run("show", *here).output
    assert "in force: 3 steps" in run("apply", ours, "--layout=mine", *here).output
    assert "There is nothing to do." in run("apply", ours, "--layout=mine", *here).output
    shown = run("show", ours, "--node=node-a", *here).output
    assert shown.count("1g.10gb@0 3g.40gb@4") == 2
    assert shown.count("in force") == 2
    exported = run("export", "--ours", *here).output
    assert "3g.40gb@4" in exported


def test_apply_refuses_with_a_sentence_and_puts_back(ours: Path, here: Sequence[str], tmp_path: Path) -> None:
    node = SimulatedNode.open(tmp_path / "state.json")
    node.cut(node.gpu_uuids()[1], [ProfileName(1, 6)])
    refused = run("apply", ours, "--layout=mine", *here)
    assert refused.exit_code == 3
    assert "is there and not in the layout" in refused.output
    node.fail_next(Verb.CREATE_COMPUTE_INSTANCE)
    failed = run("apply", ours, "--layout=mine", "--replace", *here)
    assert failed.exit_code == 3
    assert "Everything was put back as it was." in failed.output
    assert len(node.instances(node.gpu_uuids()[1])) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["apply"], "Say which layout"),
        (["apply", "--layout=none"], "has no layout for none. Its layouts: mine."),
        (["apply", "--layout=mine", "--driver=fake"], "Say where the simulated GPUs are kept"),
    ],
)
def test_what_is_missing_is_told(ours: Path, words: list[str], sentence: str) -> None:
    verb, *rest = words
    result = run(verb, ours, *rest)
    assert result.exit_code == 2
    assert sentence in result.output
