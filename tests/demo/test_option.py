"""Bad arguments get a sentence that says what to write; good ones become nodes and people."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mig_spawner.demo.fleet import Node
from mig_spawner.demo.option import Options, people
from mig_spawner.demo.workspace import Ports
from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu.model import find_model, list_models
from mig_spawner.wire.menu import Menu


def test_each_gpu_argument_is_a_node() -> None:
    options = Options.of(gpus=("a100-80gb:2", "H100-80GB"), users=2)
    assert options.nodes == (Node("simulated-a", "a100-80gb", 2), Node("simulated-b", "h100-80gb-sxm", 1))
    assert options.people == ("alice", "bob")


def test_every_run_has_a_password_of_its_own_that_no_repr_shows() -> None:
    one, other = (Options.of() for _ in range(2))
    assert one.password != other.password
    assert one.password not in repr(one)


def test_people_never_run_out_of_names() -> None:
    assert len(set(people(50))) == 50


@pytest.mark.parametrize(
    ("gpus", "users", "port", "sentence"),
    [
        pytest.param(("tpu-v5:1",), 4, 0, "a100-80gb", id="unknown model lists the models"),
        pytest.param(("a100-80gb:0",), 4, 0, "1 to 8 GPUs, not 0", id="no gpu on a node"),
        pytest.param(("a100-80gb:9999",), 4, 0, "1 to 8 GPUs", id="more gpus than a node has"),
        pytest.param(("a100-80gb:two",), 4, 0, "MODEL:COUNT", id="count in words"),
        pytest.param(("",), 4, 0, "MODEL:COUNT", id="empty"),
        pytest.param(("a100-80gb",) * 9, 4, 0, "at most 8 nodes", id="too many nodes"),
        pytest.param((), 0, 0, "--users takes a number from 1 to 50, not 0", id="nobody"),
        pytest.param((), 1000, 0, "from 1 to 50, not 1000", id="too many people"),
        pytest.param((), 4, 70000, "--port takes a number", id="no such port"),
        pytest.param((), 4, -1, "--port takes a number", id="negative port"),
    ],
)
def test_a_bad_argument_gets_a_sentence(gpus: tuple[str, ...], users: int, port: int, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        Options.of(gpus=gpus, users=users, port=port)


def test_the_tour_brings_its_own_gpus_menu_and_people(tmp_path: Path) -> None:
    for bad in ({"gpus": ("a30:1",)}, {"menu": tmp_path}):
        with pytest.raises(InvalidRequest, match="Leave --gpu and --menu out"):
            Options.for_check(**bad)
    options = Options.for_check(users=1)
    assert len(options.people) == 4
    assert options.port == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(None, "cannot be read: No such file", id="missing"),
        pytest.param("[", "is no YAML", id="no yaml"),
        pytest.param("- {display_name: Small, profile: 1g.10gb, colour: red}", "'colour' is not known", id="no menu"),
    ],
)
def test_a_bad_menu_gets_a_sentence(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "menu.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidRequest, match=sentence):
        Options.of(menu=path)


@pytest.mark.parametrize("model", [m.key for m in list_models() if not m.refusal])
def test_every_model_gets_a_menu_that_it_can_serve(model: str) -> None:
    options = Options.of(gpus=(model,))
    offered = {str(p.profile.name) for p in find_model(model).profiles}
    entries = list(Menu.parse(options.menu))
    assert {e.profile for e in entries if e.profile} <= offered
    assert len([e for e in entries if e.profile]) == 3
    assert [e.none for e in entries if e.default] == [True]


def test_a_port_in_use_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequest, match=f"Port {port} is in use.*--port"):
            Ports.choose(port)


def test_free_ports_differ() -> None:
    ports = Ports.choose(0)
    assert len({ports.public, ports.proxy_api, ports.hub, ports.allocator}) == 4
