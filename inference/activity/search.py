"""
Finds requests among many millions, for the console, in a time that does not grow with them.

One condition is answered by an index alone. For several, one index is chosen and the others are hidden from
the planner, and no more rows are looked at than fit into a moment: `Found.since` says how far back that was.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from inference.models import Activity
from organization.models import ProjectKey

# For several conditions at once: how many rows are read at most to find those that meet them all, and how
# many of these are shown. Rows that meet one condition lie far apart, so to read one is to read a page.
LOOKED_AT = 10_000
MOST_FOUND = 500
PRESETS = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
OK, REFUSED, FAILED = "ok", "refused", "failed"
LEAST_ID_DIGITS, ID_DIGITS = 8, 32
# As customers see it: in the header, and in the ids of completions and responses.
ID_TEXT = re.compile(r"(?:chatcmpl-|resp_)?([0-9a-f-]+)")


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for. Whatever is None or empty does not matter."""

    organization_id: uuid.UUID | None = None
    project_id: uuid.UUID | None = None
    api_key_id: uuid.UUID | None = None
    model: str = ""
    # `ok`, `refused`, `failed`, or one status as a number.
    status: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Found:
    requests: QuerySet[Activity]
    # Earlier ones were not looked at; None: all were.
    since: datetime | None = None
    # More were found than are shown.
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    column: str
    lookup: str
    value: object
    has_index: bool = True

    @property
    def plain(self) -> Q:
        return Q(**{f"{self.column}__{self.lookup}": self.value})

    def hidden_in(self, rows: QuerySet[Activity]) -> QuerySet[Activity]:
        """The same, as no index has it."""
        name = f"shown_{self.column}_{self.lookup}"
        shown = rows.alias(**{name: Coalesce(self.column, self.column)})
        return shown.filter(**{f"{name}__{self.lookup}": self.value})


def find(rows: QuerySet[Activity], question: Question) -> Found:
    """Those of `rows` that are asked for, newest first."""
    every, rows = rows, _in_time(rows, question).order_by("-ended_at")
    conditions = _conditions(question)
    if conditions is None:
        return Found(rows.none())
    indexed = [each for each in conditions if each.has_index]
    if len(conditions) == len(indexed) <= 1:
        return Found(rows.filter(*[each.plain for each in indexed]))
    best, since = _furthest_back(rows, indexed)
    # One bound and not two: SQLite would go by either.
    looked_at = _in_time(every, replace(question, since=since or question.since)).order_by("-ended_at")
    if best is not None:
        looked_at = looked_at.filter(best.plain)
    for each in conditions:
        if each is not best:
            looked_at = each.hidden_in(looked_at)
    # Looked for once, and not again for their number and for each page.
    found = list(looked_at.values_list("pk", flat=True)[:MOST_FOUND])
    return Found(rows.filter(pk__in=found), since, is_cut=len(found) == MOST_FOUND)


def id_range(text: str) -> tuple[uuid.UUID, uuid.UUID] | None:
    """The first and the last id that begin as `text` does, which is a request's id or the start of one."""
    match = ID_TEXT.fullmatch(text.strip().lower())
    digits = match[1].replace("-", "") if match else ""
    if not LEAST_ID_DIGITS <= len(digits) <= ID_DIGITS:
        return None
    return uuid.UUID(digits.ljust(ID_DIGITS, "0")), uuid.UUID(digits.ljust(ID_DIGITS, "f"))


def _in_time(rows: QuerySet[Activity], question: Question) -> QuerySet[Activity]:
    if question.since is not None:
        rows = rows.filter(ended_at__gte=question.since)
    if question.until is not None:
        rows = rows.filter(ended_at__lt=question.until)
    return rows


def _conditions(question: Question) -> list[Condition] | None:
    """None where there is nothing that could meet them."""
    found = [*_conditions_of_status(question.status)]
    if question.api_key_id is not None:
        # A key is of one project, which has an index; each more would be paid for by every request.
        project_id = (
            ProjectKey.objects.filter(pk=question.api_key_id).values_list("project_id", flat=True).first()
        )
        if project_id is None or question.project_id not in (None, project_id):
            return None
        found.append(Condition("project_id", "exact", project_id))
        found.append(Condition("api_key_id", "exact", question.api_key_id, has_index=False))
    elif question.project_id is not None:
        found.append(Condition("project_id", "exact", question.project_id))
    if question.organization_id is not None:
        found.append(Condition("organization_id", "exact", question.organization_id))
    if question.model:
        found.append(Condition("model", "exact", question.model))
    return found


def _conditions_of_status(status: str) -> list[Condition]:
    if not status:
        return []
    if status == OK:
        return [Condition("status", "lt", 400, has_index=False)]
    if status == REFUSED:
        return [Condition("status", "gte", 400), Condition("status", "lt", 500, has_index=False)]
    if status == FAILED:
        return [Condition("status", "gte", 500)]
    single = Condition("status", "exact", int(status), has_index=False)
    if int(status) < 400:
        return [single]
    return [Condition("status", "gte", 500 if int(status) >= 500 else 400), single]


def _furthest_back(
    rows: QuerySet[Activity], indexed: list[Condition]
) -> tuple[Condition | None, datetime | None]:
    """The condition that the fewest rows meet, and since when those are that will be looked at."""
    furthest: tuple[Condition | None, datetime | None] | None = None
    candidates: list[Condition | None] = [*indexed] or [None]
    for each in candidates:
        met = rows.filter(each.plain) if each else rows
        since = met.values_list("ended_at", flat=True)[LOOKED_AT : LOOKED_AT + 1].first()
        if since is None:
            return each, None
        if furthest is None or furthest[1] is None or since < furthest[1]:
            furthest = each, since
    return furthest or (None, None)


def parse_question(given: dict[str, str]) -> Question:
    """What the parts of an address say. Raises ValueError for what cannot be."""
    status = given.get("status", "")
    if status not in ("", OK, REFUSED, FAILED) and not (status.isdecimal() and 100 <= int(status) <= 599):
        raise ValueError(f"{status!r} is not a status.")
    since, until = _moment(given.get("from", "")), _moment(given.get("to", ""), is_end=True)
    if since is None and until is None and (preset := given.get("when", "")):
        if preset not in PRESETS:
            raise ValueError(f"{preset!r} is not one of the times to choose.")
        since = timezone.now() - PRESETS[preset]
    return Question(
        organization_id=_uuid(given.get("organization__id__exact", "")),
        project_id=_uuid(given.get("project__id__exact", "")),
        api_key_id=_uuid(given.get("api_key__id__exact", "")),
        model=given.get("model", ""),
        status=status,
        since=since,
        until=until,
    )


def _uuid(text: str) -> uuid.UUID | None:
    return uuid.UUID(text) if text else None


def _moment(text: str, *, is_end: bool = False) -> datetime | None:
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if is_end and len(text) == len("2026-01-01"):
        moment += timedelta(days=1)  # the day itself is meant too
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
