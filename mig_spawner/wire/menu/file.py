"""Reading a menu from a YAML file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import yaml

from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.menu import Menu


def read_menu(path: str) -> Menu:
    """The menu in a YAML file, as it is now.

    Raises:
        InvalidRequest: the file cannot be read or is no menu; with a sentence that names the file.
    """
    try:
        found = Path(path).stat()
        return _read_menu(path, (found.st_mtime_ns, found.st_size, found.st_ino))
    except OSError as error:
        raise InvalidRequest(f"The menu file {path} cannot be read: {error.strerror}.") from error


@lru_cache(maxsize=16)
def _read_menu(path: str, version: tuple[int, int, int]) -> Menu:
    del version  # part of the key: a changed file is read again
    try:
        return Menu.parse(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The menu file {path} is no YAML: {error}") from error
    except InvalidRequest as error:
        raise InvalidRequest(f"The menu file {path}: {error}") from error
