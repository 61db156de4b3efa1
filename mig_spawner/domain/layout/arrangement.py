"""Fitting several instances on one empty GPU, as an admin at the keyboard would."""

from __future__ import annotations

from collections.abc import Sequence

from mig_spawner.domain.gpu import GPU, Layout, Profile
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest


def arrange(gpu: GPU, names: Sequence[ProfileName], *, on: Layout | None = None) -> list[tuple[Profile, int]]:
    """Profile and start for each name, in the order given, such that all fit together on the empty GPU.

    Args:
        on: what is taken already; nothing by default.

    Raises:
        InvalidRequest: a profile that this GPU does not offer, or no way to fit them.
    """
    profiles: list[Profile] = []
    for name in names:
        profile = gpu.profile(name)
        if profile is None:
            offered = ", ".join(str(p.name) for p in gpu.profiles)
            raise InvalidRequest(f"{gpu.model} offers no {name}. It offers {offered}.")
        profiles.append(profile)
    # The largest first: they have the fewest places, so a wrong turn shows early.
    order = sorted(range(len(profiles)), key=lambda n: -profiles[n].size)
    room = Layout(gpu) if on is None else on
    fits = sum(p.size for p in profiles) <= gpu.grid - room.taken
    starts = _search(room, [profiles[n] for n in order]) if fits else None
    if starts is None:
        raise InvalidRequest(f"{', '.join(str(n) for n in names)} do not fit together on one {gpu.model}.")
    placed = dict(zip(order, starts, strict=True))
    return [(profile, placed[n]) for n, profile in enumerate(profiles)]


def _search(layout: Layout, profiles: Sequence[Profile]) -> list[int] | None:
    if not profiles:
        return []
    first, *rest = profiles
    for start in layout.starts(first):
        starts = _search(layout.with_instance(first, start), rest)
        if starts is not None:
            return [start, *starts]
    return None
