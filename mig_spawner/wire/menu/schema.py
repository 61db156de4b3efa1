"""The menu's JSON schema, for editors and for whoever makes menus by a program. It is made from what reads them."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from mig_spawner.wire.menu.entry import KINDS, MenuEntry
from mig_spawner.wire.menu.menu import MAX_ENTRIES, MAX_QUOTAS, MAX_TEXT
from mig_spawner.wire.menu.quota import QuotaEntry

_FLAGS: Final = ("whole", "none")


def menu_schema() -> dict[str, Any]:
    """The schema of a file that `Menu.parse` reads. What depends on several values at once it knows in part only."""
    definitions = {"entry": _definition(MenuEntry), "quota": _definition(QuotaEntry)}
    entry = definitions["entry"]
    entry["required"] = ["display_name"]
    entry["oneOf"] = [_is_said(kind) for kind in KINDS]
    hours = entry["properties"]["hours"]
    entry["properties"]["hours"] = {"anyOf": [{"type": "string"}, hours]}
    line = {"type": ["string", "null"], "maxLength": MAX_TEXT}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Menu of mig-spawner",
        "description": "What people may have: entries alone, or under `entries` beside what holds for all of them.",
        "if": {"type": "object", "anyOf": [{"required": ["entries"]}, {"required": ["quotas"]}]},
        "then": {
            "additionalProperties": False,
            "properties": {
                "entries": {"$ref": "#/$defs/entries"},
                "quotas": {
                    "anyOf": [
                        {"type": "array", "items": {"$ref": "#/$defs/quota"}, "maxItems": MAX_QUOTAS},
                        {"type": "null"},
                    ]
                },
                **dict.fromkeys(("contact", "currency", "timezone"), line),
            },
        },
        "else": {"$ref": "#/$defs/entries"},
        "$defs": {
            "entries": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/entry"}, "maxItems": MAX_ENTRIES},
                    {
                        "type": "object",
                        "additionalProperties": {"$ref": "#/$defs/entry"},
                        "maxProperties": MAX_ENTRIES,
                    },
                    {"type": "null"},
                ]
            },
            **definitions,
        },
    }


def _definition(model: type[BaseModel]) -> dict[str, Any]:
    """The model's own schema, without what others beside it define."""
    schema = model.model_json_schema(by_alias=True)
    own: dict[str, Any] = {key: value for key, value in schema.items() if key not in ("$defs", "title")}
    own["properties"] = {name: _inlined(field, schema.get("$defs", {})) for name, field in own["properties"].items()}
    return own


def _inlined(field: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(field, dict):
        if "$ref" in field:
            return definitions[field["$ref"].rpartition("/")[2]]
        return {key: _inlined(value, definitions) for key, value in field.items() if key != "title"}
    return [_inlined(value, definitions) for value in field] if isinstance(field, list) else field


def _is_said(kind: str) -> dict[str, Any]:
    said = {"const": True} if kind in _FLAGS else {"not": {"type": "null"}}
    return {"required": [kind], "properties": {kind: said}}
