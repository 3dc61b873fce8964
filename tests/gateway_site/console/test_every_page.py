"""Every page of the console opens over thousands of requests, with as few queries as over a handful."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.benchmarks import console
from tests.gateway_site.console.clients import owner

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
# A list reads itself, its number, what its rows belong to and what its filters offer, the session and the
# person; the overview has a dozen figures.
MOST_QUERIES = 30


@pytest.mark.slow
def test_every_page_of_a_loaded_console_takes_few_queries() -> None:
    console.load(requests=3_000, lines=2_000, projects=5, keys=10)
    client = owner()

    costly: dict[str, int] = {}
    for page in console.console_pages():
        with CaptureQueriesContext(connection) as made:
            assert client.get(page.address).status_code == 200, page
        if len(made) > MOST_QUERIES:
            costly[page.name] = len(made)

    assert costly == {}
