"""What names, labels and values may look like, each with the sentence that says so: in the words of the real server."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mig_spawner.testing.kube.errors import Cause

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_ENV_NAME = re.compile(r"[ -<>-~]+")

_ENV_RULE = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def _rule(text: str, examples: tuple[str, ...], form: re.Pattern[str]) -> str:
    listed = ",  or ".join(f"'{example}'" for example in examples)
    return f"{text} (e.g. {listed}, regex used for validation is '{form.pattern}')"


SUBDOMAIN_RULE = _rule(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character",
    ("example.com",),
    _SUBDOMAIN,
)
LABEL_RULE = _rule(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character",
    ("my-name", "123-abc"),
    _LABEL,
)
_QUALIFIED_RULE = _rule(
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character",
    ("MyName", "my.name", "123-abc"),
    _QUALIFIED,
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE = _rule(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    ("key.name", "KEY_NAME", "key-name"),
    _CONFIG_KEY,
)


def subdomain_faults(field: str, name: str) -> Iterator[Cause]:
    """The name of most things: words with dots between them."""
    if len(name) > 253:
        yield Cause.invalid(field, name, "must be no more than 253 characters")
    if not _SUBDOMAIN.fullmatch(name):
        yield Cause.invalid(field, name, SUBDOMAIN_RULE)


def label_faults(field: str, name: str) -> Iterator[Cause]:
    """A name without dots, as of containers, volumes and namespaces."""
    if len(name) > 63:
        yield Cause.invalid(field, name, "must be no more than 63 characters")
    if not _LABEL.fullmatch(name):
        yield Cause.invalid(field, name, "must not contain dots" if "." in name else LABEL_RULE)


def qualified_faults(field: str, key: str, *, folded: bool = False) -> Iterator[Cause]:
    """The key of a label, or of an annotation, whose prefix may have capitals (`folded`)."""
    prefix, slash, name = key.rpartition("/")
    if len(name) > 63:
        yield Cause.invalid(field, key, "name part must be no more than 63 characters")
    if not _QUALIFIED.fullmatch(name):
        yield Cause.invalid(field, key, _QUALIFIED_RULE)
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix.lower() if folded else prefix)):
        yield Cause.invalid(field, key, f"prefix part {SUBDOMAIN_RULE}")


def value_faults(field: str, value: str) -> Iterator[Cause]:
    """The value of a label."""
    if len(value) > 63:
        yield Cause.invalid(field, value, "must be no more than 63 characters")
    if value and not _QUALIFIED.fullmatch(value):
        yield Cause.invalid(field, value, _VALUE_RULE)


def env_name_faults(field: str, name: str) -> Iterator[Cause]:
    """The name of an environment variable."""
    if not name:
        yield Cause.required(field)
    elif not _ENV_NAME.fullmatch(name):
        yield Cause.invalid(field, name, _ENV_RULE)


def config_key_faults(field: str, key: str) -> Iterator[Cause]:
    """A key in a config map or a secret."""
    if len(key) > 253 or key in {".", ".."} or not _CONFIG_KEY.fullmatch(key):
        yield Cause.invalid(field, key, _KEY_RULE)
