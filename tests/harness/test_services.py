"""The services behind the tests are the real ones, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection

from organization import services
from organization.models import AuditEvent
from tests.factories import SOMEONE
from tests.harness.isolation.table_reset import tables
from tests.harness.postgres import PostgresServer
from tests.harness.valkey import ValkeyServer

ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def is_alive(process_id: int) -> bool:
    """A process that has ended and that nobody has reaped is not alive."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(process_id: int, directory: Path) -> None:
    deadline = time.monotonic() + 10
    while is_alive(process_id) or directory.exists():
        assert time.monotonic() < deadline, "the server or its directory is still there"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


# --- the database under test ---------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_database_is_the_one_that_was_asked_for(
    pytestconfig: pytest.Config, database_vendor: str
) -> None:
    asked_for = pytestconfig.getoption("database")
    with connection.cursor() as cursor:
        if asked_for == "postgres":
            assert database_vendor == "postgresql"
            cursor.execute("SELECT version()")
            assert cursor.fetchone()[0].startswith("PostgreSQL ")
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("on",)
        else:
            assert database_vendor == "sqlite"
            cursor.execute("PRAGMA journal_mode")
            assert cursor.fetchone() == ("wal",)


@pytest.mark.django_db(transaction=True)
def test_the_next_test_finds_the_database_as_migrations_left_it() -> None:
    roles = set(Group.objects.values_list("name", "permissions__codename"))
    services.create_organization(name="Acme", actor=SOMEONE)
    Group.objects.all().delete()

    tables().restore()

    assert roles
    assert set(Group.objects.values_list("name", "permissions__codename")) == roles
    assert not AuditEvent.objects.exists()
    services.create_organization(name="Acme", actor=SOMEONE)
    with pytest.raises(DatabaseError, match="append-only"):
        AuditEvent.objects.all().delete()


def test_nothing_is_kept_in_the_working_tree() -> None:
    assert not settings.GATEWAY_DATA_DIR.is_relative_to(ROOT)


@pytest.mark.django_db(transaction=True)
def test_another_process_works_on_the_same_database(process_environment: dict[str, str]) -> None:
    get_user_model().objects.create(username="from the test")

    seen = run_python(
        "import django; django.setup()\n"
        "from django.contrib.auth.models import User\n"
        "print(User.objects.get().username)\n"
        "User.objects.create(username='from the process')\n",
        process_environment,
    )

    assert seen == "from the test\n"
    assert get_user_model().objects.filter(username="from the process").exists()


@pytest.mark.django_db(transaction=True)
def test_another_thread_works_on_the_same_database() -> None:
    def write() -> None:
        get_user_model().objects.create(username="from the thread")
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()

    assert get_user_model().objects.filter(username="from the thread").exists()


@pytest.mark.django_db(transaction=True)
def test_a_session_that_a_thread_left_open_does_not_keep_the_database() -> None:
    """Proved when this run ends: a test database that cannot be dropped is an error."""
    is_connected = threading.Event()

    def connect_and_stay() -> None:
        connection.ensure_connection()
        is_connected.set()
        threading.Event().wait()

    threading.Thread(target=connect_and_stay, daemon=True).start()

    assert is_connected.wait(10)


# --- PostgreSQL ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("immediate", [False, True], ids=["orderly", "crash"])
def test_what_was_committed_survives_a_restart(postgres: PostgresServer, immediate: bool) -> None:
    with psycopg.connect(postgres.url()) as session:
        session.execute("DROP TABLE IF EXISTS kept")
        session.execute("CREATE TABLE kept AS SELECT 1 AS number")

    postgres.restart(immediate=immediate)

    with psycopg.connect(postgres.url()) as session:
        assert session.execute("SELECT number FROM kept").fetchall() == [(1,)]


def test_a_stop_ends_the_sessions_and_a_start_takes_new_ones(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url()) as session:
        postgres.stop()
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres.url())

    postgres.start()

    with psycopg.connect(postgres.url()) as session:
        assert session.execute("SELECT 1").fetchone() == (1,)


def test_settings_reach_the_server() -> None:
    names = ["fsync", "max_connections", "work_mem", "listen_addresses", "server_encoding"]
    with (
        PostgresServer(fsync=True, max_connections=7, settings={"work_mem": "1MB"}) as server,
        psycopg.connect(server.url()) as session,
    ):
        shown = [session.execute(f"SELECT current_setting('{name}')").fetchone() for name in names]

    assert shown == [("on",), ("7",), ("1MB",), ("",), ("UTF8",)]


def test_closing_removes_everything() -> None:
    server = PostgresServer()
    server.start()
    process_id, directory = server.process_id, server.directory

    server.close()

    assert process_id is not None
    assert not is_alive(process_id)
    assert not directory.exists()


@pytest.mark.parametrize("server", ["postgres.PostgresServer", "valkey.ValkeyServer"])
def test_a_server_does_not_outlive_a_process_that_was_killed(server: str) -> None:
    code = f"""if True:
        import time
        from tests.harness import postgres, valkey
        server = {server}()
        server.start()
        print(server.process_id, server.directory, flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        process_id, directory = owner.stdout.readline().split()
        assert is_alive(int(process_id))

        owner.kill()

    wait_until_gone(int(process_id), Path(directory))


# --- Valkey --------------------------------------------------------------------------------------------


def test_valkey_answers(valkey_url: str) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        client.set("tests:greeting", "hello", ex=60)
        assert client.get("tests:greeting") == b"hello"


def test_valkey_keeps_its_address_and_loses_its_data_when_restarted() -> None:
    with ValkeyServer() as server:
        url = server.url
        with redis.Redis.from_url(url) as client:
            client.set("greeting", "hello")
            server.restart()
            assert server.url == url
            assert client.get("greeting") is None
