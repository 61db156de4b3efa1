"""Layouts as files of NVIDIA's mig-parted, written and read.

mig-parted names a configuration and the GPUs of one node by index, in the order of `nvidia-smi`. Our GPUs are of several models and
nodes, so there is one configuration for each model, and its indices count the GPUs of that model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.fleet import Cut

MAX_DEVICES: Final = 10_000


def as_parted(cuts: Sequence[tuple[GPU, Cut]], name: str = "planned") -> str:
    """A mig-parted file with one configuration for each model: `planned`, or `planned-1`, `planned-2` where there are several."""
    models: dict[str, list[Cut]] = {}
    for gpu, cut in cuts:
        models.setdefault(gpu.model, []).append(cut)
    lines = ["version: v1", "mig-configs:"]
    for number, (model, own) in enumerate(models.items(), start=1):
        lines.append(f"  {name if len(models) == 1 else f'{name}-{number}'}: # {model}")
        for cut, places in _alike(own).items():
            lines += [f"    - devices: {places}", f"      mig-enabled: {str(bool(cut)).lower()}"]
            lines += ["      mig-devices:"] if cut else []
            lines += [f'        "{profile}": {count}' for profile, count in sorted(Counter(cut).items())]
    return "\n".join(lines) + "\n"


def _alike(cuts: Sequence[Cut]) -> Mapping[Cut, list[int]]:
    places: dict[Cut, list[int]] = {}
    for number, cut in enumerate(cuts):
        places.setdefault(tuple(sorted(cut)), []).append(number)
    return places


def read_parted(path: Path, gpus: Sequence[GPU]) -> dict[str, list[Cut]]:
    """Every configuration of a mig-parted file, as a cut for each of these GPUs.

    Raises:
        InvalidRequest: with a sentence that names the configuration.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"The layout {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The layout {path} is no YAML: {error}") from error
    configs = document.get("mig-configs") if isinstance(document, dict) else None
    if not isinstance(configs, dict) or not configs:
        raise InvalidRequest(f"The layout {path} has no mig-configs: it is a file of mig-parted.")
    return {str(name): _cuts(f"{path}, {name}", entries, gpus) for name, entries in configs.items()}


def _cuts(where: str, entries: Any, gpus: Sequence[GPU]) -> list[Cut]:
    if not isinstance(entries, list):
        raise InvalidRequest(f"{where}: a configuration is a list of entries.")
    cuts: list[Cut] = [()] * len(gpus)
    for entry in entries:
        if not isinstance(entry, dict):
            raise InvalidRequest(f"{where}: an entry has devices, mig-enabled and mig-devices.")
        devices, wanted = entry.get("devices"), entry.get("mig-devices") or {}
        if devices != "all" and not (isinstance(devices, list) and all(type(d) is int for d in devices)):
            raise InvalidRequest(f"{where}: devices is the word all, or a list of numbers.")
        if not isinstance(wanted, dict) or not all(
            type(count) is int and 0 <= count < 100 for count in wanted.values()
        ):
            raise InvalidRequest(f"{where}: mig-devices says how many of each profile.")
        cut = tuple(ProfileName.parse(name) for name, count in wanted.items() for _ in range(count))
        for number in range(len(gpus)) if devices == "all" else devices:
            if 0 <= number < len(gpus):
                cuts[number] = cut if entry.get("mig-enabled", True) else ()
    return cuts
