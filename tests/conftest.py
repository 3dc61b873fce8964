"""The cast: Acme is ours, Rival is a stranger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import django_ratelimit.core
import hypothesis
import pytest
from django.test import TransactionTestCase

from gateway_site.api.rest_rate_limits import limits
from organization import services
from organization.models import Organization, Project
from tests.factories import SOMEONE, make_admin_key
from tests.harness.client import ApiClient
from tests.harness.isolation import process_state
from tests.harness.isolation.table_reset import tables
from tests.harness.workers import GroupedScheduling


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupedScheduling:
    return GroupedScheduling(config, log)


# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    """No test pays for another's requests, nor finds rows that another's thread wrote late."""
    process_state.forget()
    yield
    left = process_state.take_away()
    process_state.forget()
    assert not left, f"the test has ended and this goes on: {left}"


@pytest.fixture(scope="session", autouse=True)
def _quickly_emptied_tables() -> Iterator[None]:
    """See `table_reset` for what Django would do after each test that commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_setup", classmethod(lambda cls: tables()))
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda self: tables().restore())
        yield


@pytest.fixture(scope="session", autouse=True)
def _windows_do_not_end() -> Iterator[None]:
    """What is counted by the minute of the clock would rightly let more pass if it ended within a test."""
    now = time.time()
    stopped = SimpleNamespace(time=lambda: now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "time", stopped)
        patch.setattr(django_ratelimit.core, "time", stopped)
        yield


@pytest.fixture
def acme(db: None) -> Organization:
    return services.create_organization(name="Acme", actor=SOMEONE)[0]


@pytest.fixture
def rival(db: None) -> Organization:
    return services.create_organization(name="Rival", actor=SOMEONE)[0]


@pytest.fixture
def project(acme: Organization) -> Project:
    return services.create_project(organization=acme, name="Web", actor=SOMEONE)[0]


@pytest.fixture
def rival_project(rival: Organization) -> Project:
    return services.create_project(organization=rival, name="Web", actor=SOMEONE)[0]


@pytest.fixture
def api(acme: Organization) -> ApiClient:
    """Acme's administrator, with every permission."""
    return ApiClient(make_admin_key(acme).value)


@pytest.fixture
def rival_api(rival: Organization) -> ApiClient:
    return ApiClient(make_admin_key(rival).value)
