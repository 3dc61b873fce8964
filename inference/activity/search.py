"""
Finds requests among many millions, for the console, in a time that does not grow with them.

One condition is answered by an index alone. For several, one index is chosen and the others are hidden from
the planner, and no more rows are read than fit into a moment: `FoundRequests.since` is how far back that was.
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
MAX_ROWS_READ = 10_000
MAX_FOUND = 500
PRESETS = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
OK, REFUSED, FAILED = "ok", "refused", "failed"
MIN_ID_DIGITS, ID_DIGITS = 8, 32
# As customers see it: in the header, and in the ids of completions and responses.
ID_TEXT = re.compile(r"(?:chatcmpl-|resp_)?([0-9a-f-]+)")


@dataclass(frozen=True, slots=True)
class RequestQuery:
    """The conditions of a search. Whatever is None or empty does not matter."""

    organization_id: uuid.UUID | None = None
    project_id: uuid.UUID | None = None
    api_key_id: uuid.UUID | None = None
    model: str = ""
    # `ok`, `refused`, `failed`, or one status as a number.
    status: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class FoundRequests:
    """The requests that a search found, newest first, and whether they are all."""

    requests: QuerySet[Activity]
    # Earlier ones were not searched; None: all were.
    since: datetime | None = None
    # More were found than are shown.
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a value, and whether an index answers it."""

    column: str
    lookup: str
    value: object
    has_index: bool = True

    @property
    def as_q(self) -> Q:
        return Q(**{f"{self.column}__{self.lookup}": self.value})

    def filter_without_index(self, rows: QuerySet[Activity]) -> QuerySet[Activity]:
        """Filter by this condition in a form that hides it from every index."""
        name = f"shown_{self.column}_{self.lookup}"
        shown = rows.alias(**{name: Coalesce(self.column, self.column)})
        return shown.filter(**{f"{name}__{self.lookup}": self.value})


def find(rows: QuerySet[Activity], query: RequestQuery) -> FoundRequests:
    """Search `rows` for the requests that meet the query, newest first."""
    all_rows, rows = rows, _within_times(rows, query).order_by("-ended_at")
    conditions = _conditions(query)
    if conditions is None:
        return FoundRequests(rows.none())
    indexed = [each for each in conditions if each.has_index]
    if len(conditions) == len(indexed) <= 1:
        return FoundRequests(rows.filter(*[each.as_q for each in indexed]))
    best, since = _most_selective(rows, indexed)
    # One bound and not two: SQLite would go by either.
    matching = _within_times(all_rows, replace(query, since=since or query.since)).order_by("-ended_at")
    if best is not None:
        matching = matching.filter(best.as_q)
    for each in conditions:
        if each is not best:
            matching = each.filter_without_index(matching)
    # Searched once, and not again for their number and for each page.
    found = list(matching.values_list("pk", flat=True)[:MAX_FOUND])
    return FoundRequests(rows.filter(pk__in=found), since, is_cut=len(found) == MAX_FOUND)


def id_range(text: str) -> tuple[uuid.UUID, uuid.UUID] | None:
    """The first and the last id that begin as `text` does, which is a request's id or the start of one."""
    match = ID_TEXT.fullmatch(text.strip().lower())
    digits = match[1].replace("-", "") if match else ""
    if not MIN_ID_DIGITS <= len(digits) <= ID_DIGITS:
        return None
    return uuid.UUID(digits.ljust(ID_DIGITS, "0")), uuid.UUID(digits.ljust(ID_DIGITS, "f"))


def _within_times(rows: QuerySet[Activity], query: RequestQuery) -> QuerySet[Activity]:
    if query.since is not None:
        rows = rows.filter(ended_at__gte=query.since)
    if query.until is not None:
        rows = rows.filter(ended_at__lt=query.until)
    return rows


def _conditions(query: RequestQuery) -> list[Condition] | None:
    """The query's conditions; None where nothing could meet them."""
    found = [*_conditions_of_status(query.status)]
    if query.api_key_id is not None:
        # A key is of one project, which has an index; each more would be paid for by every request.
        project_id = (
            ProjectKey.objects.filter(pk=query.api_key_id).values_list("project_id", flat=True).first()
        )
        if project_id is None or query.project_id not in (None, project_id):
            return None
        found.append(Condition("project_id", "exact", project_id))
        found.append(Condition("api_key_id", "exact", query.api_key_id, has_index=False))
    elif query.project_id is not None:
        found.append(Condition("project_id", "exact", query.project_id))
    if query.organization_id is not None:
        found.append(Condition("organization_id", "exact", query.organization_id))
    if query.model:
        found.append(Condition("model", "exact", query.model))
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


def _most_selective(
    rows: QuerySet[Activity], indexed: list[Condition]
) -> tuple[Condition | None, datetime | None]:
    """The indexed condition that the fewest rows meet, and since when those are that will be read."""
    furthest: tuple[Condition | None, datetime | None] | None = None
    candidates: list[Condition | None] = [*indexed] or [None]
    for each in candidates:
        met = rows.filter(each.as_q) if each else rows
        since = met.values_list("ended_at", flat=True)[MAX_ROWS_READ : MAX_ROWS_READ + 1].first()
        if since is None:
            return each, None
        if furthest is None or furthest[1] is None or since < furthest[1]:
            furthest = each, since
    return furthest or (None, None)


def parse_query(given: dict[str, str]) -> RequestQuery:
    """Read the query from the parameters of an address; ValueError for what cannot be."""
    status = given.get("status", "")
    if status not in ("", OK, REFUSED, FAILED) and not (status.isdecimal() and 100 <= int(status) <= 599):
        raise ValueError(f"{status!r} is not a status.")
    since, until = _parse_time(given.get("from", "")), _parse_time(given.get("to", ""), is_end=True)
    if since is None and until is None and (preset := given.get("when", "")):
        if preset not in PRESETS:
            raise ValueError(f"{preset!r} is not one of the times to choose.")
        since = timezone.now() - PRESETS[preset]
    return RequestQuery(
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


def _parse_time(text: str, *, is_end: bool = False) -> datetime | None:
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if is_end and len(text) == len("2026-01-01"):
        moment += timedelta(days=1)  # the day itself is meant too
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
