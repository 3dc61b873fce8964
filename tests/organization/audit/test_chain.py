"""Somebody who can write to the database, triggers or not, changes the audit trail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from organization.audit import chain
from organization.audit import trail as audit
from organization.models import AuditChainHead, AuditEvent, AuditLink, Organization
from organization.tasks import verify_audit_trail
from tests.factories import SOMEONE
from tests.harness.isolation.connections import close_connections
from tests.harness.isolation.table_reset import triggers_disabled

pytestmark = pytest.mark.django_db(transaction=True)

EVENT, LINK, HEAD = (model._meta.db_table for model in (AuditEvent, AuditLink, AuditChainHead))
DETAILS: list[dict[str, Any]] = [
    {},
    {"usd": "1.50", "before": {"names": ["ä", "\u2028", "😀"], "on": True}},
    {"share": 0.1, "large": 1e20, "whole": 3.0, "tiny": 1.5e-7, "nothing": None},
    {1: "a number for a name"},  # type: ignore[dict-item]
]


@pytest.fixture
def trail(acme: Organization) -> list[AuditEvent]:
    """Five events and their links."""
    for details in DETAILS:
        audit.record(SOMEONE, "test", acme, organization=acme, details=details)
    assert problems() == []
    return list(AuditEvent.objects.order_by("pk"))


def problems() -> list[tuple[str, int]]:
    return [(problem.kind, problem.event_id) for problem in chain.verify().problems]


@contextmanager
def by_hand() -> Iterator[Any]:
    """A cursor of somebody who has switched the triggers off."""
    with transaction.atomic(), connection.cursor() as cursor, triggers_disabled(cursor, [EVENT, LINK, HEAD]):
        yield cursor


def test_what_the_gateway_wrote_is_whole(trail: list[AuditEvent]) -> None:
    found = chain.verify()

    assert (found.linked, found.pending, found.problems) == (len(trail), 0, [])
    assert list(AuditLink.objects.order_by("number").values_list("event_id", flat=True)) == [
        event.pk for event in trail
    ]


@pytest.mark.parametrize(
    "change",
    [
        "actor_label = 'FORGED'",
        'details = \'{"usd": "2"}\'',
        "organization_id = NULL",
        "occurred_at = '2020-01-01 00:00:00'",
        "seal = NULL",
    ],
)
def test_a_changed_event_is_named(trail: list[AuditEvent], change: str) -> None:
    with by_hand() as cursor:
        cursor.execute(f"UPDATE {EVENT} SET {change} WHERE id = %s", [trail[1].pk])
        cursor.execute(f"UPDATE {EVENT} SET action = 'later' WHERE id = %s", [trail[3].pk])

    assert problems() == [("changed", trail[1].pk)]


def test_a_changed_event_is_named_though_all_digests_were_made_anew(trail: list[AuditEvent]) -> None:
    with by_hand() as cursor:
        cursor.execute(f"UPDATE {EVENT} SET actor_label = 'FORGED' WHERE id = %s", [trail[1].pk])
        digest = AuditLink.objects.get(event_id=trail[0].pk).digest
        for number, event in enumerate(AuditEvent.objects.order_by("pk")[1:], 2):
            digest = chain._link_digest(digest, number, event)  # no key is needed for that
            cursor.execute(f"UPDATE {LINK} SET digest = %s WHERE number = %s", [digest, number])
        cursor.execute(f"UPDATE {HEAD} SET digest = %s", [digest])
    assert problems() == [("changed", trail[1].pk)]

    with by_hand() as cursor:  # as if the key of all of these had left
        cursor.execute(f"UPDATE {LINK} SET key_id = 'gone' WHERE number > 1")
    assert problems() == [("unsigned", trail[1].pk)]


@pytest.mark.parametrize("tables", [[EVENT], [EVENT, LINK]], ids=["event", "event and link"])
def test_a_removed_event_is_missed(trail: list[AuditEvent], tables: list[str]) -> None:
    with by_hand() as cursor:
        for table in tables:
            column = "id" if table == EVENT else "event_id"
            cursor.execute(f"DELETE FROM {table} WHERE {column} = %s", [trail[2].pk])

    assert problems() == [("removed", trail[2 if tables == [EVENT] else 3].pk)]


def test_events_that_were_cut_off_the_end_are_missed(trail: list[AuditEvent]) -> None:
    with by_hand() as cursor:
        cursor.execute(f"DELETE FROM {EVENT} WHERE id > %s", [trail[2].pk])
        cursor.execute(f"DELETE FROM {LINK} WHERE event_id > %s", [trail[2].pk])
    assert problems() == [("removed", trail[2].pk)]

    last = AuditLink.objects.latest("number")
    with by_hand() as cursor:
        cursor.execute(f"UPDATE {HEAD} SET number = %s, digest = %s", [last.number, last.digest])
    assert problems() == [("unsigned", trail[2].pk)]


def test_an_inserted_event_is_named_and_never_linked(trail: list[AuditEvent]) -> None:
    forged = AuditEvent.objects.create(
        actor_kind="staff", actor_id="1", actor_label="ada", action="test", target_kind="x", target_id="x"
    )
    for attempt in ("0" * 80, "x", "ä" * 80):
        AuditEvent.objects.create(actor_kind="staff", action="test", seal=attempt)

    verify_audit_trail()

    assert problems() == [("inserted", forged.pk)]
    assert AuditLink.objects.count() == len(trail)


def test_a_copy_of_an_event_is_found(trail: list[AuditEvent]) -> None:
    columns = [str(field.column) for field in AuditEvent._meta.concrete_fields if field.column != "id"]
    names = ", ".join(columns)
    with by_hand() as cursor:
        cursor.execute("DROP INDEX audit_seal_used_once")
        cursor.execute(
            f"INSERT INTO {EVENT} ({names}) SELECT {names} FROM {EVENT} WHERE id = %s", [trail[1].pk]
        )
    try:
        assert problems() == [("inserted", AuditEvent.objects.latest("pk").pk)]
    finally:
        with by_hand() as cursor:
            cursor.execute(f"DELETE FROM {EVENT} WHERE id > %s", [trail[-1].pk])
            cursor.execute(
                f"CREATE UNIQUE INDEX audit_seal_used_once ON {EVENT} (seal) WHERE seal IS NOT NULL"
            )


def test_entries_outlive_the_key_that_signed_them(trail: list[AuditEvent], settings: Any) -> None:
    old, new = settings.ENCRYPTION_KEYS[0], Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [new, old]
    assert problems() == []
    verify_audit_trail()  # signs the head with the new key

    settings.ENCRYPTION_KEYS = [new]

    assert problems() == []
    audit.record(SOMEONE, "test", trail[0].organization, organization=None)  # type: ignore[arg-type]
    assert problems() == []
    with by_hand() as cursor:
        cursor.execute(f"UPDATE {EVENT} SET actor_label = 'FORGED' WHERE id = %s", [trail[1].pk])
    assert problems() == [("changed", trail[1].pk)]


def test_a_trail_whose_only_key_is_gone_is_not_called_whole(trail: list[AuditEvent], settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]

    assert problems() == [("unsigned", trail[0].pk)]
    verify_audit_trail()
    assert problems() == [("unsigned", trail[0].pk)]


def test_an_event_that_was_rolled_back_has_no_link(trail: list[AuditEvent], acme: Organization) -> None:
    with transaction.atomic():
        audit.record(SOMEONE, "test", acme, organization=acme)
        transaction.set_rollback(True)

    assert chain.verify().linked == len(trail)
    assert problems() == []


def test_a_link_that_failed_is_made_up_for_with_the_next(trail: list[AuditEvent], acme: Organization) -> None:
    def fail(execute: Any, statement: str, values: Any, many: bool, context: Any) -> Any:
        if f'INTO "{LINK}"' in statement:
            raise ConnectionError("the link cannot be written")
        return execute(statement, values, many, context)

    with connection.execute_wrapper(fail):
        audit.record(SOMEONE, "test", acme, organization=acme)
    found = chain.verify()
    assert (found.linked, found.pending, found.problems) == (len(trail), 1, [])

    audit.record(SOMEONE, "test", acme, organization=acme)

    found = chain.verify()
    assert (found.linked, found.pending, found.problems) == (len(trail) + 2, 0, [])


def test_writers_at_the_same_time_make_one_chain(trail: list[AuditEvent], acme: Organization) -> None:
    def write() -> None:
        start.wait(10)
        for _ in range(5):
            with transaction.atomic():
                audit.record(SOMEONE, "test", acme, organization=acme)
                audit.record(SOMEONE, "test", acme, organization=acme)
        close_connections()

    start = threading.Barrier(4)
    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)

    found = chain.verify()
    assert (found.linked, found.pending, found.problems) == (len(trail) + 40, 0, [])


def test_the_command_says_what_it_found(trail: list[AuditEvent], capsys: pytest.CaptureFixture[str]) -> None:
    call_command("verify_audit_trail", "--json")
    said = json.loads(capsys.readouterr().out)
    head = AuditChainHead.objects.get()
    assert said == {"ok": True, "events": 5, "pending": 0, "head": head.digest, "problems": []}

    with by_hand() as cursor:
        cursor.execute(f"DELETE FROM {EVENT} WHERE id = %s", [trail[2].pk])
    with pytest.raises(CommandError, match="not as the gateway wrote it"):
        call_command("verify_audit_trail")
    assert f"BROKEN from event {trail[2].pk}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_database_with_events_is_migrated(acme: Organization) -> None:
    before = [("organization", "0003_words_of_the_console")]
    latest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    try:
        with by_hand() as cursor:
            cursor.execute(f"DELETE FROM {LINK}")
        apps = MigrationExecutor(connection).migrate(before).apps
        old = apps.get_model("organization", "AuditEvent")
        for number in range(chain.BATCH + 5):
            old.objects.create(
                actor_kind="staff", actor_id="1", action=f"old {number}", details={"n": number}
            )
    finally:
        MigrationExecutor(connection).migrate(latest)

    found = chain.verify()
    assert (found.linked, found.problems) == (chain.BATCH + 6, [])
    with by_hand() as cursor:
        cursor.execute(f"UPDATE {EVENT} SET actor_id = '2' WHERE action = 'old 3'")
    assert problems() == [("changed", AuditEvent.objects.get(action="old 3").pk)]
    for model in (AuditLink, AuditEvent):
        with pytest.raises(DatabaseError, match="append-only"):
            model._default_manager.all().delete()
