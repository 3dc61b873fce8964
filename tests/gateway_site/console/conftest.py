"""What most tests of the console begin with."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.gateway_site.console.clients import owner
from tests.gateway_site.console.factories import SampleRows, make_sample_rows


@pytest.fixture
def samples(db: None) -> SampleRows:
    """One row of every model that has a page in the console."""
    return make_sample_rows()


@pytest.fixture
def console(db: None) -> Client:
    """An owner, logged in."""
    return owner()
