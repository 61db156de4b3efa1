"""What the demo is asked for: GPUs, people, menu, port. Checked before anything starts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import yaml

from mig_spawner.demo.fleet import Node
from mig_spawner.demo.menu import menu_for
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.menu import Menu

NAMES: Final = (
    "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "ken", "laura",
)  # fmt: skip
ADMIN: Final = "admin"
MAX_PEOPLE: Final = 50
MAX_NODES: Final = 8
DEFAULT_PORT: Final = 8000
DEFAULT_GPUS: Final = ("a100-80gb:1", "h100-80gb:1")
CHECK_GPUS: Final = ("a100-80gb:1",)
CHECK_PEOPLE: Final = 4


class KubeKind(StrEnum):
    """Which Kubernetes the demo runs on."""

    EMBEDDED = "embedded"
    """An API server in memory; it needs nothing."""
    REAL = "real"
    """Real API server, scheduler and controllers, whose programs must be there already."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    Attributes:
        people: who may log in, without the admin.
        menu: what the spawn form offers, as `MIGSpawner.menu` takes it.
        port: where the browser goes, on 127.0.0.1; 0 for any free one.
        logs: where the parts' logs stay when the demo has ended; None to keep none.
        kube: which Kubernetes.
        password: the same for everybody; made afresh for each run, so that nobody else on this machine can log in.
    """

    nodes: tuple[Node, ...]
    people: tuple[str, ...]
    menu: Any
    port: int
    logs: Path | None = None
    kube: KubeKind = KubeKind.EMBEDDED
    password: str = field(default_factory=lambda: secrets.token_hex(4), repr=False)

    @classmethod
    def of(
        cls,
        *,
        gpus: Sequence[str] = (),
        users: int = 4,
        port: int | None = None,
        menu: Path | None = None,
        logs: Path | None = None,
        kube: str = KubeKind.EMBEDDED,
    ) -> Options:
        """Read the command line of the demo, and fill in what it left out.

        Raises:
            InvalidRequest: with a sentence that says what to write instead.
        """
        if not 1 <= users <= MAX_PEOPLE:
            raise InvalidRequest(f"--users takes a number from 1 to {MAX_PEOPLE}, not {users}.")
        if port is not None and not 0 <= port <= 65535:
            raise InvalidRequest(f"--port takes a number from 0 (any free port) to 65535, not {port}.")
        if len(gpus) > MAX_NODES:
            raise InvalidRequest(f"The demo simulates at most {MAX_NODES} nodes; leave out some --gpu.")
        nodes = tuple(
            Node.parse(f"simulated-{letter}", text)
            for letter, text in zip("abcdefgh", gpus or DEFAULT_GPUS, strict=False)
        )
        return cls(
            nodes=nodes,
            people=people(users),
            menu=menu_for(nodes) if menu is None else read_menu(menu),
            port=DEFAULT_PORT if port is None else port,
            logs=logs,
            kube=KubeKind(kube),
        )

    @classmethod
    def for_check(
        cls,
        *,
        gpus: Sequence[str] = (),
        users: int = 4,
        port: int | None = None,
        menu: Path | None = None,
        logs: Path | None = None,
        kube: str = KubeKind.EMBEDDED,
    ) -> Options:
        """Read the command line of the tour, which brings its own small fleet and menu and takes any free port.

        Raises:
            InvalidRequest: likewise.
        """
        if gpus or menu is not None:
            raise InvalidRequest(
                "--check brings its own GPUs and menu, so that it knows what must happen. Leave --gpu and --menu out."
            )
        return cls.of(gpus=CHECK_GPUS, users=max(users, CHECK_PEOPLE), port=port or 0, logs=logs, kube=kube)


def people(count: int) -> tuple[str, ...]:
    """The first `count` names: alice, bob, carol, …, person13, person14."""
    return tuple(NAMES[i] if i < len(NAMES) else f"person{i + 1}" for i in range(count))


def read_menu(path: Path) -> Any:
    """A menu in a YAML file, checked.

    Raises:
        InvalidRequest: with a sentence that names the file and the entry.
    """
    try:
        menu = yaml.safe_load(path.read_text(encoding="utf-8"))
        Menu.parse(menu)
    except OSError as error:
        raise InvalidRequest(f"The menu file {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The menu file {path} is no YAML: {error}") from error
    except InvalidRequest as error:
        raise InvalidRequest(f"The menu file {path}: {error}") from error
    return menu
