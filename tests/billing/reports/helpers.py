"""The costs report as its route answers it."""

from __future__ import annotations

from typing import Any

from tests.billing.settled_requests import DAY, FIRST, midnight
from tests.harness.client import ApiClient

URL = "/v1/organization/costs"
START = midnight(FIRST)


def results(api: ApiClient, query: str = "", days: int = 1) -> list[Any]:
    """The results of each day from FIRST on."""
    page = api.get(f"{URL}?start_time={START}&end_time={START + days * DAY}&limit=180{query}").json
    return [bucket["results"] for bucket in page["data"]]
