"""The cast: Acme is ours, Rival is a stranger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from django.core.cache import cache
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper

from organization import services
from organization.audit import Actor
from organization.models import Organization, Project
from organization.services import NewKey
from tests.client import ApiClient

SOMEONE = Actor.command("tests")

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    """Rate limits count in the cache; no test pays for another's requests."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(scope="session", autouse=True)
def _flush_append_only_tables() -> Iterator[None]:
    """SQLite empties tables between tests by DELETE, which append-only tables refuse."""
    operations = DatabaseWrapper.ops_class
    original = operations.execute_sql_flush

    def flush(self: Any, sql_list: list[str]) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            triggers = cursor.fetchall()
            for name, _ in triggers:
                cursor.execute(f"DROP TRIGGER {name}")
            original(self, sql_list)
            for _, statement in triggers:
                cursor.execute(statement)

    operations.execute_sql_flush = flush  # type: ignore[method-assign,assignment]
    yield
    operations.execute_sql_flush = original  # type: ignore[method-assign]


def close_connections() -> None:
    """For threads that tests start: what they opened must not outlive them."""
    connections.close_all()


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


def make_admin_key(organization: Organization, **options: Any) -> NewKey[Any]:
    return services.create_admin_key(organization=organization, name="ops", actor=SOMEONE, **options)


def make_project_key(project: Project, **options: Any) -> NewKey[Any]:
    return services.create_project_key(project=project, name="app", actor=SOMEONE, **options)


@pytest.fixture
def api(acme: Organization) -> ApiClient:
    """Acme's administrator, with every permission."""
    return ApiClient(make_admin_key(acme).value)


@pytest.fixture
def rival_api(rival: Organization) -> ApiClient:
    return ApiClient(make_admin_key(rival).value)
