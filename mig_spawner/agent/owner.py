"""Does something else own the GPUs of this node? Two owners of one GPU always collide.

Found without asking Kubernetes, by what runs on the node: with the PID namespace of the host an agent sees every program, with
its arguments and, as root, its environment. The same rules hold for the labels of a node, for those who have them at hand.

| owner | while | found by |
|---|---|---|
| NVIDIA's device plugin | it hands out MIG devices (`MIG_STRATEGY` single or mixed) | `nvidia-device-plugin` |
| mig-manager, mig-parted | they change a layout | `nvidia-mig-parted apply`; `nvidia.com/mig.config.state` pending or rebooting |
| the DRA driver | it makes MIG devices itself (feature gate `DynamicMIG`) | `gpu-kubelet-plugin` |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MAX_READ: Final = 64 * 1024
_STRATEGIES: Final = ("single", "mixed")
_CHANGING: Final = ("pending", "rebooting")


@dataclass(frozen=True, slots=True)
class Program:
    """A program that runs on the node. The environment is empty where it may not be read."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.arguments[0].rpartition("/")[2] if self.arguments else ""

    def option(self, flag: str, variable: str) -> str:
        """What an option is set to, by `--flag=value`, `--flag value` or the environment; empty if it is not."""
        for place, word in enumerate(self.arguments):
            if word == flag and place + 1 < len(self.arguments):
                return self.arguments[place + 1]
            if word.startswith(f"{flag}="):
                return word.partition("=")[2]
        return self.environment.get(variable, "")


def programs(proc: Path = Path("/proc")) -> Iterator[Program]:
    """The programs of the node that could be an owner. One that ends meanwhile is left out."""
    for folder in proc.glob("[0-9]*"):
        arguments = _words(folder / "cmdline")
        if arguments and _concerns(arguments[0]):
            pairs = (word.partition("=") for word in _words(folder / "environ"))
            yield Program(arguments, {name: value for name, _, value in pairs})


def owners(running: Iterable[Program], *, dynamic: bool, labels: Mapping[str, str] | None = None) -> list[str]:
    """Why this agent must not manage the node now, a sentence each that says how to change it; empty if it may.

    Args:
        dynamic: it would cut GPUs. One that only leases what stands goes together with a device plugin.
        labels: of the node, if they are known.
    """
    found = [sentence for program in running for sentence in _of_program(program, dynamic=dynamic)]
    found += _of_labels(labels or {}, dynamic=dynamic)
    return list(dict.fromkeys(found))


def _of_program(program: Program, *, dynamic: bool) -> Iterator[str]:
    match program.name:
        case "nvidia-device-plugin" if dynamic:
            strategy = program.option("--mig-strategy", "MIG_STRATEGY")
            if strategy in _STRATEGIES:
                yield (
                    f"NVIDIA's device plugin hands out MIG devices here (MIG strategy {strategy}). Label the node "
                    "nvidia.com/gpu.deploy.device-plugin=false, or run this agent with --mode=static."
                )
        case "gpu-kubelet-plugin" if dynamic:
            gates = program.option("--feature-gates", "FEATURE_GATES")
            if "DynamicMIG=true" in gates.replace(" ", "").split(","):
                yield (
                    "NVIDIA's DRA driver makes MIG devices here (feature gate DynamicMIG). Switch the gate off, or run this agent with "
                    "--mode=static."
                )
        case "nvidia-mig-parted" | "mig-parted" if "apply" in program.arguments:
            yield _CHANGE
        case _:
            pass


_CHANGE: Final = (
    "mig-manager is changing the layout of this node. When it has ended, the agent goes on; to keep it away, remove the label "
    "nvidia.com/mig.config of the node."
)


def _of_labels(labels: Mapping[str, str], *, dynamic: bool) -> Iterator[str]:
    if labels.get("nvidia.com/mig.config.state") in _CHANGING:
        yield _CHANGE
    plugin = labels.get("nvidia.com/gpu.deploy.device-plugin", "")
    strategy = labels.get("nvidia.com/mig.strategy", "")
    if dynamic and strategy in _STRATEGIES and plugin == "true":
        yield (
            f"NVIDIA's device plugin hands out MIG devices here (label nvidia.com/mig.strategy={strategy}). Label the node "
            "nvidia.com/gpu.deploy.device-plugin=false, or run this agent with --mode=static."
        )


def _concerns(path: str) -> bool:
    return path.rpartition("/")[2] in ("nvidia-device-plugin", "gpu-kubelet-plugin", "nvidia-mig-parted", "mig-parted")


def _words(file: Path) -> tuple[str, ...]:
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_READ).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(word for word in text.split("\0") if word)


__all__: Sequence[str] = ["Program", "owners", "programs"]
