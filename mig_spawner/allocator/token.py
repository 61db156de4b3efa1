"""The tokens of services and agents, as an admin gives them: each long enough, each for one caller."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mig_spawner.errors import InvalidRequest

MIN_TOKEN: Final = 8


def checked_tokens(services: Sequence[str], agents: Mapping[str, str], file: str) -> dict[str, str]:
    """The tokens of all agents by node, those of the file included.

    Raises:
        InvalidRequest: a token is too short, or used twice. It is never shown.
    """
    tokens = dict(agents)
    if file:
        path = Path(file)
        tokens |= parse_tokens(path.read_text(encoding="utf-8"), str(path))
    known = [*services, *tokens.values()]
    if any(len(token) < MIN_TOKEN for token in known):
        raise InvalidRequest(f"A token has at least {MIN_TOKEN} characters. Make one with `openssl rand -hex 32`.")
    if len(set(known)) != len(known):
        raise InvalidRequest("Every agent has a token of its own, and none is a service's: one is used twice.")
    return tokens


def parse_tokens(text: str, source: str) -> dict[str, str]:
    """Read `{"node": "token"}`.

    Raises:
        InvalidRequest: it is nothing of the kind.
    """
    try:
        tokens = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f'{source} is no JSON. Write {{"node": "token"}}.') from error
    if not isinstance(tokens, dict) or not all(isinstance(token, str) for token in tokens.values()):
        raise InvalidRequest(f'{source} is no JSON object of texts. Write {{"node": "token"}}.')
    return tokens
