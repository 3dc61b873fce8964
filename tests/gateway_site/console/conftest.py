"""What most tests of the console begin with."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.gateway_site.console.factories import World, make_world
from tests.gateway_site.console.people import owner


@pytest.fixture
def world(db: None) -> World:
    """One of everything that has a page."""
    return make_world()


@pytest.fixture
def console(db: None) -> Client:
    """An owner, logged in."""
    return owner()
