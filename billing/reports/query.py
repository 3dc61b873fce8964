"""The query parameters of the cost report, parsed strictly."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Model, QuerySet
from django.http import QueryDict

from billing.reports import cursor
from billing.reports.cursor import ReportCursor
from billing.reports.read_plan import DAY_SECONDS
from gateway_site.api.errors import InvalidRequest, NotFound
from gateway_site.api.identifiers import uuid_or_none
from gateway_site.api.pagination import integer
from organization.models import Organization, Project, ProjectKey

# Unspecified: cost-parameters. The names are those that the OpenAI SDK sends, and so is the default page
# size; the bounds are the spec's. The SDK writes lists as `name[]`, the spec as `name`, repeated or with
# commas; all of these are read, mixed as well.
START, END, WIDTH = "start_time", "end_time", "bucket_width"
PROJECTS, KEYS, GROUPS = "project_ids", "api_key_ids", "group_by"
PAGE_SIZE, CURSOR = "limit", cursor.PARAM
SCALARS = (START, END, WIDTH, PAGE_SIZE, CURSOR)
LISTS = (PROJECTS, KEYS, GROUPS)

ONLY_WIDTH = "1d"
DIMENSIONS = ("project_id", "api_key_id", "line_item")
MAX_IDS = 100
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 7, 180
# The last day but one that a date can be, so that the end of a day is always a date as well.
MAX_TIME = 253_402_214_400


@dataclass(frozen=True, slots=True)
class CostQuery:
    """One page of one report. Times are Unix seconds, and days are counted from 1970."""

    organization_id: uuid.UUID
    project_ids: frozenset[uuid.UUID]
    api_key_ids: frozenset[uuid.UUID]
    # In the order of DIMENSIONS, however the caller named them.
    group_by: tuple[str, ...]
    # The page's start, inclusive: within a day on the first page alone.
    start_time: int
    # The report's end, exclusive; the page may end before it.
    end_time: int
    limit: int
    filters: str

    @property
    def first_day(self) -> int:
        return self.start_time // DAY_SECONDS

    @property
    def end_day(self) -> int:
        """The day after the last one of the report."""
        return -(-self.end_time // DAY_SECONDS)

    @property
    def page_end_day(self) -> int:
        return min(self.first_day + self.limit, self.end_day)

    @property
    def page_end_time(self) -> int:
        return min(self.page_end_day * DAY_SECONDS, self.end_time)

    def bucket_bounds(self, day: int) -> tuple[int, int]:
        """The start and end of a bucket: of the day, or of the part of it that is in the report."""
        # Unspecified: cost-parameters. So that buckets of adjacent reports add up, and tell what they cover.
        return max(day * DAY_SECONDS, self.start_time), min((day + 1) * DAY_SECONDS, self.end_time)

    def next_page(self) -> str | None:
        if self.page_end_day == self.end_day:
            return None
        return cursor.write(
            ReportCursor(self.page_end_day, self.end_time),
            organization_id=self.organization_id,
            filters=self.filters,
        )


def parse(query: QueryDict, organization: Organization) -> CostQuery:
    _refuse_unknown(query)
    values = {name: _single(query, name) for name in SCALARS if name in query}
    if START not in values:
        raise InvalidRequest("This query parameter is required.", param=START)
    if values.get(WIDTH, ONLY_WIDTH) != ONLY_WIDTH:
        raise InvalidRequest(f"This must be {ONLY_WIDTH}.", param=WIDTH)
    start_time = _time(values[START], START)
    given_end = _time(values[END], END) if END in values else None
    projects = _ids(query, PROJECTS, Project.objects.filter(organization=organization))
    keys = _ids(query, KEYS, ProjectKey.objects.filter(project__organization=organization))
    groups = _groups(query)
    size = integer(
        values.get(PAGE_SIZE, str(DEFAULT_PAGE_SIZE)), param=PAGE_SIZE, minimum=1, maximum=MAX_PAGE_SIZE
    )
    filters = _digest(start_time, given_end, projects, keys, groups)
    if CURSOR in values:
        position = cursor.read(values[CURSOR], organization_id=organization.pk, filters=filters)
    else:
        # The second that is running counts as well: what was admitted a moment ago is in.
        end_time = int(time.time()) + 1 if given_end is None else given_end
        if start_time >= end_time:
            param = START if given_end is None else END
            raise InvalidRequest("The report must start before it ends.", param=param)
        position = ReportCursor(start_time // DAY_SECONDS, end_time)
    return CostQuery(
        organization.pk,
        projects,
        keys,
        groups,
        start_time=max(start_time, position.day * DAY_SECONDS),
        end_time=position.end_time,
        limit=size,
        filters=filters,
    )


def _refuse_unknown(query: QueryDict) -> None:
    for name in query:
        if name not in SCALARS and name.removesuffix("[]") not in LISTS:
            raise InvalidRequest("This query parameter is not accepted.", param=name)


def _single(query: QueryDict, name: str) -> str:
    if len(query.getlist(name)) != 1:
        raise InvalidRequest("This query parameter was given more than once.", param=name)
    return str(query[name])


def _time(text: str, param: str) -> int:
    return integer(text, param=param, minimum=0, maximum=MAX_TIME)


def _items(query: QueryDict, name: str, most: int) -> list[str]:
    """The values of a list parameter, whichever way it was written."""
    texts = [str(text) for text in (*query.getlist(name), *query.getlist(f"{name}[]"))]
    items = [item for text in texts for item in text.split(",")]
    if len(items) > most:
        raise InvalidRequest(f"This takes at most {most} values.", param=name)
    if "" in items:
        raise InvalidRequest("A value must not be empty.", param=name)
    return items


def _ids(query: QueryDict, name: str, own: QuerySet[Model]) -> frozenset[uuid.UUID]:
    items = _items(query, name, MAX_IDS)
    if not items:
        return frozenset()
    ids = {uuid_or_none(item) for item in items}
    # A stranger's id, one that nobody has, and no id at all: the same answer.
    if None in ids or own.filter(pk__in=ids).count() != len(ids):
        raise NotFound("Not all of these ids are in your organization.", param=name)
    return frozenset(each for each in ids if each is not None)


def _groups(query: QueryDict) -> tuple[str, ...]:
    items = _items(query, GROUPS, len(DIMENSIONS))
    if not set(items) <= set(DIMENSIONS):
        raise InvalidRequest(f"This takes {', '.join(DIMENSIONS)}.", param=GROUPS)
    return tuple(each for each in DIMENSIONS if each in items)


def _digest(
    start_time: int,
    end_time: int | None,
    projects: Iterable[uuid.UUID],
    keys: Iterable[uuid.UUID],
    groups: tuple[str, ...],
) -> str:
    parts = [
        start_time,
        end_time,
        sorted(each.hex for each in projects),
        sorted(each.hex for each in keys),
        groups,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
