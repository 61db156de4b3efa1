"""The menu: what people may have, as an admin writes it in YAML or in a configuration.

    - display_name: No GPU
      none: true
    - display_name: Small slice
      profile: 1g.10gb
      mem_limit: 16G
      default: true

A list of entries, or a mapping from id to entry, or one of these under `entries:` beside what holds for all of them. Each entry says
exactly one of `profile`, `min_memory` (GB), `whole: true` and `none: true`. Ids are what links, scripts and saved choices hold on
to: without one an entry is known by a slug of its display name.
"""

from mig_spawner.wire.menu.entry import MenuEntry
from mig_spawner.wire.menu.menu import MAX_ENTRIES, Menu, live_menu, slug

__all__ = ["MAX_ENTRIES", "Menu", "MenuEntry", "live_menu", "slug"]
