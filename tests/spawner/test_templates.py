"""Templates of an admin's own, which extend ours: the form, and the waiting room in the hub's environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader
from jupyterhub._data import DATA_FILES_PATH
from traitlets import TraitError

from mig_spawner.spawner import MIGSpawner, template_path
from mig_spawner.spawner.form import form_view, render_form
from mig_spawner.spawner.waiting.room import room_view
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.menu import Menu

MENU = [{"id": "small", "display_name": "<i>Small</i>", "profile": "1g.10gb"}]


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_the_form_takes_blocks_of_an_admin(
    tmp_path: Path, availability: Callable[..., Availability], offer: Callable[..., OfferDocument]
) -> None:
    view = form_view(Menu.parse(MENU), availability(offer("1g.10gb", 5, 7)))
    plain = render_form(view)
    extended = '{% extends "templates/spawner/choice.html" %}{% block about %}{{ super() }}<p>Ask {{ choice.name }}</p>{% endblock %}'
    write(tmp_path, "spawner/choice.html", extended)
    write(
        tmp_path,
        "spawner/form.html",
        '{% extends "templates/spawner/form.html" %}{% block foot %}Our rules{% endblock %}',
    )
    own = render_form(view, [str(tmp_path)])
    assert "<p>Ask &lt;i&gt;Small&lt;/i&gt;</p>" in own, "it is escaped as ours is"
    assert "14 of 98 SMs" in own
    assert "Our rules" in own
    assert "mig-summary" in plain
    assert "mig-summary" not in own
    assert render_form(view) == plain, "other hubs of this process have ours"


async def test_a_spawner_looks_into_the_folders_that_it_is_given(
    make_spawner: Callable[..., MIGSpawner], tmp_path: Path
) -> None:
    write(tmp_path, "spawner/need.html", "Ask us how much you need.")
    assert "Ask us how much you need." in await make_spawner(template_paths=[str(tmp_path)]).get_options_form()
    write(tmp_path, "spawner/need.html", "{{ nothing }}")
    broken = await make_spawner(template_paths=[str(tmp_path), str(tmp_path / "spawner")]).get_options_form()
    assert "GPU choices cannot be shown now" in broken, "what is wrong with it is in the log, and people can start"


def test_a_folder_that_is_not_there_is_refused(make_spawner: Callable[..., MIGSpawner], tmp_path: Path) -> None:
    with pytest.raises(TraitError, match="There is no folder"):
        make_spawner(template_paths=[str(tmp_path / "none")])


@pytest.mark.parametrize("own", [False, True])
def test_the_waiting_room_takes_blocks_of_an_admin(tmp_path: Path, own: bool) -> None:
    text = '{% extends "mig/room.html" %}{% block head %}{{ super() }}<p>Coffee is in room 3.</p>{% endblock %}'
    if own:
        write(tmp_path, "mig_room.html", text)
    base = str(Path(DATA_FILES_PATH) / "templates")
    # As the hub makes it from `template_paths`.
    environment = Environment(
        loader=ChoiceLoader(
            [
                PrefixLoader({"templates": FileSystemLoader(base)}),
                FileSystemLoader([str(tmp_path), template_path(), base]),
            ]
        ),
        autoescape=True,
    )
    events: list[dict[str, Any]] = [{"message": "<b>Position 2</b>"}]
    room = room_view(
        events, entry=None, offered=(), availability=None, waits=True, checked=True, action="/act", script="/s.js"
    )
    html = environment.get_template("mig_room.html").render(room=room, progress_url="/p", xsrf="x")
    assert ("Coffee is in room 3." in html) == own
    assert "Your server is starting" in html
    assert "&lt;b&gt;Position 2" in html
