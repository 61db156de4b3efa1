"""Who used how much, and what is left for whom."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.page.menu import MAX_GROUPS
from mig_spawner.allocator.quota.view import quota_documents, usage
from mig_spawner.domain.rule import Person
from mig_spawner.wire.base import Document, Label
from mig_spawner.wire.quota import QuotaDocument, Usage, UsageKey

USUAL_DAYS: Final = 30


class UsageQuery(Document):
    """Added up by what, over how many days until now."""

    by: UsageKey = UsageKey.PERSON
    days: Annotated[int, Field(ge=1, le=3660)] = USUAL_DAYS


class QuotaQuery(Document):
    """For whom: a user, and groups with commas between."""

    user: Label = ""
    groups: Annotated[str, Field(max_length=2000)] = ""


@dataclass(frozen=True, slots=True)
class UsageView:
    query: UsageQuery
    usage: Usage


@dataclass(frozen=True, slots=True)
class QuotaView:
    """What is left for somebody; `rules` says whether there are any quotas at all."""

    query: QuotaQuery
    quotas: tuple[QuotaDocument, ...]
    rules: int


def usage_view(ledger: Ledger, query: UsageQuery) -> UsageView:
    return UsageView(query, usage(ledger, query.by, timedelta(days=query.days)))


def quota_view(ledger: Ledger, query: QuotaQuery) -> QuotaView:
    groups = [name.strip() for name in query.groups.split(",") if name.strip()][:MAX_GROUPS]
    quotas = quota_documents(ledger, Person(query.user, frozenset(groups)))
    return QuotaView(query, quotas, len(ledger.menu.quotas))
