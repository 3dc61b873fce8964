"""One upstream for all outcomes, and a gateway in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference.backends import registry
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream, upstream_in_thread
from tests.inference.customer import ApiCustomer
from tests.inference.serving.lifecycle.outcome.ways import Gateway


@pytest.fixture(scope="module")
def upstream() -> Iterator[FaultyUpstream]:
    with upstream_in_thread() as running:
        yield running


@pytest.fixture
def gateway(customer: ApiCustomer, upstream: FaultyUpstream) -> Gateway:
    registry._made.clear()
    del upstream.exchanges[:]
    return Gateway(customer, upstream)
