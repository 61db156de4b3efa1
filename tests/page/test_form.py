"""The spawn form on a small and on a very large fleet: it says the same, with other numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.setting import Setting
from mig_spawner.spawner.form import form_view, render_form
from mig_spawner.wire.menu import Menu
from tests.page.fleet import big_ledger_in

MENU: Final = [
    {"id": "none", "display_name": "CPU only", "none": True, "default": True},
    {"id": "small", "display_name": "Small slice", "profile": "1g.10gb"},
    {"id": "about", "display_name": "About 30 GB", "min_memory": 30},
    {"id": "whole", "display_name": "Whole GPU", "whole": True},
]
FREE: Final = re.compile(r"free now (\d+) of (\d+)")


def form(folder: Path, gpus: int) -> str:
    folder.mkdir()
    store = big_ledger_in(folder, gpus)
    availability = LeaseService(Desk(store, Setting(), lambda _: None)).availability()
    store.close()
    return render_form(form_view(Menu.parse(MENU), availability))


def test_the_form_does_not_grow_with_the_fleet(tmp_path: Path) -> None:
    small, large = form(tmp_path / "small", 64), form(tmp_path / "large", 10_240)
    assert FREE.findall(small) == [("448", "448"), ("128", "128"), ("64", "64")]
    assert FREE.findall(large) == [("71680", "71680"), ("20480", "20480"), ("10240", "10240")]
    without_numbers = [re.sub(r"\d+", "", html) for html in (small, large)]
    assert without_numbers[0] == without_numbers[1]
