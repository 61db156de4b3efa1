"""The settings of `MIGSpawner`. Few: whatever KubeSpawner already has is set there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traitlets import Bool, Dict, Enum, Float, HasTraits, Int, List, TraitError, Unicode, Union, default, validate

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.share import parse_bounds, parse_sizes
from mig_spawner.wire.client import DEFAULT_TIMEOUT_S
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.menu.file import read_menu

_log = logging.getLogger(__name__)
_last_good: dict[str, Menu] = {}


class MIGTraits(HasTraits):
    """Traits, and the menu they lead to."""

    allocator_url = Unicode(
        "http://mig-allocator:8080/services/mig",
        config=True,
        help="""
        Where the hub reaches the allocator, with its service prefix.

        Set it to the allocator's address inside the cluster. If it cannot be reached, servers without a GPU still start.
        """,
    )

    allocator_token = Unicode(
        config=True,
        help="""
        The API token of the allocator's JupyterHub service; the hub shows it to the allocator.

        Default: the environment variable MIG_ALLOCATOR_TOKEN. Both sides must have the same one. It is never logged or shown.
        """,
    )

    allocator_public_url = Unicode(
        "/services/mig",
        config=True,
        help="""
        Where browsers reach the allocator, for live counts in the form: a path below the hub's base URL, or a whole URL.

        Change it when the service has another name than `mig`, or a domain of its own.
        """,
    )

    template_paths = List(
        Unicode(),
        config=True,
        help="""
        Folders with templates of your own for our part of the form, looked into before ours.

        `spawner/choice.html` there, say, is used instead of ours, and may `{% extends "templates/spawner/choice.html" %}`. The page on
        the pages says what there is to extend. The waiting room is looked for in `JupyterHub.template_paths`.
        """,
    )

    @validate("template_paths")
    def _folders(self, proposal: Any) -> Any:
        missing = [path for path in proposal.value if not Path(path).is_dir()]
        if missing:
            raise TraitError(f"There is no folder {missing[0]!r} for template_paths. Make it, or leave it out.")
        return proposal.value

    allocator_timeout = Float(
        DEFAULT_TIMEOUT_S,
        min=0.1,
        config=True,
        help="""
        How long one answer of the allocator may take, seconds, on top of time spent waiting in line.

        The form waits as long before it says that availability is unknown, so keep it short.
        """,
    )

    menu = Union(
        [List(), Dict()],
        config=True,
        help="""
        What people may have: a list of entries, or a mapping from id to entry.

        Each entry has a `display_name` and exactly one of `profile: 1g.10gb`, `min_memory: 12` (GB), `whole: true` and
        `none: true`. It may have `id`, `description`, `default: true`, `duration` (seconds) and the host's limits `cpu_limit`,
        `cpu_guarantee`, `mem_limit`, `mem_guarantee` and `shm` (bytes, or `16G` as in KubeSpawner). `shm` is the size of
        `/dev/shm`; what is written there is memory and counts within `mem_limit`.

        Without a menu people may choose no GPU, or any profile that the allocator offers. Example::

            c.MIGSpawner.menu = [
                {"display_name": "No GPU", "none": True, "default": True},
                {"display_name": "Small slice", "profile": "1g.10gb", "mem_limit": "16G", "shm": "4G"},
            ]
        """,
    )

    menu_file = Unicode(
        config=True,
        help="""
        A YAML file with the menu, used where `menu` is empty. A change of the file holds from the next form or start on.
        """,
    )

    mig_profile = Unicode(
        config=True,
        help="""
        The slice that a profile brings along: a MIG profile such as `1g.10gb`, the id of an entry of the menu, `whole` or `none`.

        Set it in the `kubespawner_override` of a profile, or of a choice of its options. The form shows beside the profiles how many
        of these slices are free. It need not be on the menu; if it is, what the entry says of the host holds as well. Whoever chooses
        such a profile cannot choose another slice beside it. Example::

            c.KubeSpawner.profile_list = [
                {"display_name": "Python", "default": True},
                {"display_name": "PyTorch", "kubespawner_override": {"image": "org/pytorch:1", "mig_profile": "1g.10gb"}},
            ]
        """,
    )

    slices_beside_profiles = Enum(
        ["all", "tagged", "none"],
        "all",
        config=True,
        help="""
        Beside which profiles the form offers slices: `all`, those `tagged`, or `none`.

        A profile is tagged by `mig: true` or by `mig: {allow: [small, 3g.40gb]}`, which lists entries of the menu by id or MIG profile;
        such a list, and `mig: false`, hold with `all` as well. With `none` the form has no slices, and only profiles that set
        `mig_profile` bring one. The rules hold for forms, links and scripts alike. No GPU can always be chosen.
        """,
    )

    queue_timeout = Float(
        300.0,
        min=0,
        config=True,
        help="""
        How long a server may wait in line for a slice, seconds; 0 for now or never.

        It comes on top of `start_timeout`, which begins when the slice is held. Whoever waits counts in the hub's
        `concurrent_spawn_limit`; see `waiting_limit`.
        """,
    )

    waiting_limit = Int(
        -1,
        min=-1,
        config=True,
        help="""
        At most so many servers of this hub stand in line at once; who comes later is refused with a sentence. 0 for no limit.

        JupyterHub counts whoever waits in its `concurrent_spawn_limit`, and turns everybody away, also people without a GPU, once
        that is reached. Default, -1: half of `concurrent_spawn_limit`, so that the other half stays free.
        """,
    )

    unschedulable_timeout = Float(
        120.0,
        min=0,
        config=True,
        help="""
        How long the scheduler may find no room for a server on the node of its slice, seconds, before the server moves to a
        slice on another node; 0 to wait for ever.

        Slices are leased before the scheduler looks at CPU and memory. What it says goes to the user, and where no other node can
        serve, the start fails with it. Keep it well below `start_timeout`, which begins anew with each move; there are at most three.
        """,
    )

    node_sizes = Dict(
        config=True,
        help="""
        What servers may request on a node, so that each slice gets its share where its menu entry says nothing. Off where empty.

        From the name of a node, or a pattern such as `gpu-a100-*`, to `gpus`, `cpu` (cores) and `memory` (bytes, or `900G`) of such
        a node; the first that matches holds. Write what is allocatable less what else runs there: system pods, sidecars of servers,
        servers without a GPU. A server then gets the part of its compute slices, guaranteed and as a limit, in place of KubeSpawner's
        `cpu_limit`, `mem_limit` and their guarantees. Where an entry or a profile asks for more than that, the log says that the
        last slices of the node may find no room. Example::

            c.MIGSpawner.node_sizes = {"gpu-a100-*": {"gpus": 8, "cpu": 120, "memory": "900G"}}
        """,
    )

    node_share = Dict(
        config=True,
        help="""
        Bounds of the share that `node_sizes` gives a server: `min_cpu`, `max_cpu` (cores), `min_memory`, `max_memory` (bytes, or
        `8G`), and `shm`, the part of its memory that `/dev/shm` may take (above 0, at most 1).

        The upper bounds hold for guarantee and limit. The lower ones raise only the limit: a guarantee above its share would take the
        room of another slice. Whoever uses more memory than is guaranteed goes first when the node has none left. Default: no bounds,
        and the container runtime's own `/dev/shm`.
        """,
    )

    nvidia_runtime_class = Unicode(
        "nvidia",
        config=True,
        help="""
        The runtimeClassName of pods with a GPU. Set it to "" where the nodes' default runtime is NVIDIA's.
        """,
    )

    start_check = Bool(
        False,
        config=True,
        help="""
        Let each container compare the GPU device that it sees with the one that was leased, before its server opens.

        Another device, none, several, another size, or any device without a lease: the start fails with the cause, and the slice goes
        back. It reads NVML by the Python of the image and needs no `nvidia-smi`; where an image has no Python, or no NVML, it says in
        the server's log that it cannot check. It needs `cmd` to be set, as z2jh does.
        """,
    )

    slices_by_link = Bool(
        False,
        config=True,
        help="""
        Let a link such as `/hub/spawn?opt-mig=1g.10gb` start a server with a GPU.

        Off, such a link shows the form with the slice selected. A link starts a server without any click, so a page elsewhere
        could make people take slices that they do not want; turn it on only where that does not matter.
        """,
    )

    live_interval = Float(
        10.0,
        min=0,
        config=True,
        help="""
        How often the form reads fresh counts, seconds, where the browser runs scripts; 0 to turn live counts off.
        """,
    )

    @default("allocator_token")
    def _allocator_token_default(self) -> str:
        return os.environ.get("MIG_ALLOCATOR_TOKEN", "")

    @validate("allocator_url", "allocator_public_url")
    def _without_slash(self, proposal: Any) -> str:
        return str(proposal.value).rstrip("/")

    @validate("menu")
    def _a_menu(self, proposal: Any) -> Any:
        return _tried(proposal, Menu.parse)

    @validate("menu_file")
    def _a_menu_file(self, proposal: Any) -> str:
        path = str(proposal.value)
        if path:
            try:
                _last_good[path] = read_menu(path)
            except InvalidRequest as error:
                raise TraitError(str(error)) from error
        return path

    @validate("node_sizes")
    def _sizes(self, proposal: Any) -> Any:
        return _tried(proposal, parse_sizes)

    @validate("node_share")
    def _bounds(self, proposal: Any) -> Any:
        return _tried(proposal, parse_bounds)

    @property
    def mig_menu(self) -> Menu:
        """The menu that holds now; an empty one stands for whatever the allocator offers."""
        if self.menu:
            return Menu.parse(self.menu)
        if not self.menu_file:
            return Menu()
        try:
            _last_good[self.menu_file] = read_menu(self.menu_file)
        except InvalidRequest as error:
            if self.menu_file not in _last_good:
                raise
            _log.warning("%s The menu from before holds on.", error)
        return _last_good[self.menu_file]


def _tried(proposal: Any, parse: Callable[[Any], object]) -> Any:
    try:
        parse(proposal.value)
    except InvalidRequest as error:
        raise TraitError(str(error)) from error
    return proposal.value
