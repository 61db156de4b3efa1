"""What an admin may write as a menu, and what the sentence says when it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.menu import Menu, live_menu, slug
from mig_spawner.wire.menu.file import read_menu

SMALL = {"display_name": "Small slice", "profile": "1g.10gb"}
NONE = {"display_name": "No GPU", "none": True}


def test_a_list_and_a_mapping_say_the_same() -> None:
    as_list = Menu.parse([{"id": "a", **SMALL}, {"id": "b", **NONE}])
    as_mapping = Menu.parse({"a": SMALL, "b": NONE})
    assert as_list.entries == as_mapping.entries
    assert [e.id for e in as_list] == ["a", "b"]


def test_without_an_id_the_display_name_makes_one() -> None:
    assert [e.id for e in Menu.parse([SMALL, NONE])] == ["small-slice", "no-gpu"]
    assert slug("Größe: 10 GB (1g.10gb)!") == "gr-e-10-gb-1g.10gb"


@pytest.mark.parametrize(
    ("fields", "request_"),
    [
        ({"profile": "mig-1g.5gb.me"}, SliceRequest(ProfileName(1, 5, "+me"))),
        ({"min_memory": 12}, MemoryRequest(12.0)),
        ({"whole": True}, WholeRequest()),
        ({"none": True}, None),
    ],
)
def test_an_entry_asks_the_allocator_for(fields: dict[str, Any], request_: object) -> None:
    [entry] = Menu.parse([{"display_name": "x", **fields}])
    assert entry.request == request_


@pytest.mark.parametrize(
    ("written", "size"), [("16G", 16 << 30), ("1.5G", 3 << 29), ("512M", 512 << 20), (" 2G", 2 << 30), (1024, 1024)]
)
def test_bytes_are_read_as_kubespawner_reads_them(written: object, size: int) -> None:
    [entry] = Menu.parse([{**NONE, "mem_limit": written}])
    assert entry.mem_limit == size


def test_the_default_is_the_marked_entry_or_the_first() -> None:
    assert Menu.parse([SMALL, NONE]).default == Menu.parse([SMALL]).entries[0]
    marked = Menu.parse([SMALL, {**NONE, "default": True}]).default
    assert marked is not None
    assert marked.none
    assert Menu().default is None


def test_null_means_not_said() -> None:
    [entry] = Menu.parse([{**SMALL, "mem_limit": None, "min_memory": None}])
    assert entry.mem_limit is None


@pytest.mark.parametrize(
    ("menu", "sentence"),
    [
        ("text", "a list of entries or a mapping"),
        ([1], "entry 1 must be a mapping"),
        ([SMALL, {"profile": "1g.10gb"}], "entry 2.*`display_name` is missing"),
        ([{"display_name": "x"}], "entry 1 .'x'.*exactly one of"),
        ([{**SMALL, "whole": True}], "profile and whole; write exactly one"),
        ([{**SMALL, "profil": "x"}], "'profil' is not known; did you mean `profile`"),
        ([{**SMALL, "cuda": 1}], "'cuda' is not known; an entry may have id, display_name"),
        ([{"display_name": "x", "profile": "1g.10"}], "'1g.10' is no MIG profile.*1g.10gb"),
        ([{"display_name": "x", "profile": "1c.3g.20gb"}], "compute instance.*3g.20gb"),
        ([{"display_name": "x", "profile": 1}], "`profile` cannot be '1'; write a MIG profile"),
        ([{**NONE, "none": "yes"}], "`none` cannot be 'yes'; write true"),
        ([{**NONE, "mem_limit": "16Q"}], "`mem_limit` cannot be '16Q'.*such as 16G"),
        ([{**NONE, "mem_limit": True}], "`mem_limit` cannot be 'True'"),
        ([{**NONE, "cpu_limit": -1}], "`cpu_limit` cannot be '-1'; write a number of cores"),
        ([{"display_name": "x", "min_memory": float("nan")}], "`min_memory` cannot be 'nan'"),
        ([{**SMALL, "mem_limit": "1G", "mem_guarantee": "2G"}], "mem_guarantee is more than mem_limit"),
        ([{**SMALL, "mem_limit": "1G", "shm": "2G"}], "shm is more than mem_limit"),
        ([{**NONE, "duration": 60}], "remove `duration`"),
        ([{**NONE, "hints": ["jax"]}], "remove `hints`"),
        ([{**SMALL, "hints": ["theano"]}], "`hints` cannot be 'theano'; write a list of pytorch, jax"),
        ([{**SMALL, "hints": "jax"}], "`hints` cannot be 'jax'; write a list"),
        ([SMALL, {**SMALL, "display_name": "small slice"}], "entry 1.*entry 2.*same id 'small-slice'"),
        ([{**SMALL, "default": True}, {**NONE, "default": True}], "entry 1.*entry 2.*both say `default: true`"),
        ([{"display_name": "日本", "none": True}], "no id can be made"),
        ([{**NONE, "id": "A b"}], "the id 'A b' must be"),
        ([{**NONE, "display_name": "x" * 201, "id": "x"}], "`display_name` cannot be.*at most 200|1 to 200"),
        ({"a": {**NONE, "id": "b"}}, "has the id 'b' as well"),
        ([{**NONE, "id": f"e{i}"} for i in range(201)], "201 entries; at most 200"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_a_wrong_menu_is_refused_by_a_sentence_that_names_the_entry(menu: object, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=f"(?s){sentence}"):
        Menu.parse(menu)


def test_without_a_menu_there_is_no_gpu_and_what_the_allocator_offers(
    availability: Callable[..., Any], offer: Callable[..., Any]
) -> None:
    offers = availability(offer("3g.40gb", 1, 2), offer(None, 1, 1), offer("1g.10gb", 1, 7))
    assert [e.id for e in live_menu(offers)] == ["none", "1g.10gb", "3g.40gb"]
    assert [e.id for e in live_menu(None)] == ["none"]


def test_a_menu_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "menu.yaml"
    file.write_text("- {display_name: No GPU, none: true}\n- {display_name: Small slice, profile: 1g.10gb}\n")
    assert [e.id for e in read_menu(str(file))] == ["no-gpu", "small-slice"]
    file.write_text("only: {display_name: No GPU, none: true, mem_limit: 1G}\n")
    assert [e.id for e in read_menu(str(file))] == ["only"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("- {a: [", "is no YAML"), ("- 5", "menu.yaml: Menu entry 1 must be"), (None, "cannot be read")],
)
def test_a_wrong_menu_file_is_named(tmp_path: Path, text: str | None, sentence: str) -> None:
    file = tmp_path / "menu.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidRequest, match=sentence):
        read_menu(str(file))
