"""Ordinary statements cannot put one row of an append-only table in another's place, nor empty the table."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.db.models import Model

from billing import services
from billing.models import CreditGrant, Reservation
from gateway_site.database.append_only import unique_columns
from organization.audit import chain
from organization.models import Organization
from tests.billing.factories import make_customer
from tests.billing.settled_requests import FIRST, Usage, hold, settle
from tests.factories import SOMEONE
from tests.policies.factories import make_published

LABELS = [
    "organization.AuditEvent",
    "organization.AuditLink",
    "billing.CreditGrant",
    "billing.CostLine",
    "billing.Reservation",
    "policies.PolicyVersion",
]


@pytest.fixture(params=LABELS)
def model(request: pytest.FixtureRequest, acme: Organization) -> type[Model]:
    """An append-only table with a row."""
    customer = make_customer(credit=1_000)
    settle(Usage(customer, FIRST, prompt=10))
    make_published(acme)
    chain.link_new_events()
    return apps.get_model(request.param)


def execute(statement: str, values: Any = None) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


def contents(model: type[Model]) -> list[Any]:
    return list(model._default_manager.order_by("pk").values_list())


def refuses(model: type[Model], statement: str, values: Any = None) -> None:
    before = contents(model)
    with pytest.raises(DatabaseError, match="append-only"):
        execute(statement, values)
    assert before
    assert contents(model) == before


def copied(model: type[Model], verb: str, *, fresh: set[str]) -> tuple[str, list[Any]]:
    """A statement that inserts a copy of the first row; the `fresh` columns have values that are new."""
    columns = [str(field.column) for field in model._meta.concrete_fields]
    pk = str(model._meta.pk.column)
    is_number = "Auto" in model._meta.pk.get_internal_type()
    new = "4711" if is_number else f"'{'f' * 32}'"
    written = ", ".join(new if column in fresh and column == pk else f'"{column}"' for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    table = model._meta.db_table
    return f"{verb} INTO {table} ({names}) SELECT {written} FROM {table} ORDER BY 1 LIMIT 1", []


@pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "INSERT OR IGNORE"])
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_sqlite_replaces_no_row(model: type[Model], database_vendor: str, verb: str, recursive: str) -> None:
    if database_vendor != "sqlite":
        pytest.skip("REPLACE is SQLite's")
    execute(f"PRAGMA recursive_triggers = {recursive}")
    pk = str(model._meta.pk.column)
    try:
        refuses(model, *copied(model, verb, fresh=set()))
        for columns in unique_columns(model)[1:]:
            # Another key, and the same values where they must be unique.
            if all(value is not None for value in first_values(model, columns)):
                refuses(model, *copied(model, verb, fresh={pk}))
    finally:
        execute("PRAGMA recursive_triggers = OFF")


def first_values(model: type[Model], columns: list[str]) -> tuple[Any, ...]:
    names = [field.attname for field in model._meta.concrete_fields if field.column in columns]
    return model._default_manager.order_by("pk").values_list(*names)[0]  # type: ignore[no-any-return]


def test_sqlite_moves_no_row_over_another(model: type[Model], database_vendor: str) -> None:
    if database_vendor != "sqlite":
        pytest.skip("REPLACE is SQLite's")
    pk = str(model._meta.pk.column)
    refuses(model, f"UPDATE OR REPLACE {model._meta.db_table} SET {pk} = {pk}")


def test_sqlite_moves_no_running_request_over_one_that_has_ended(database_vendor: str, db: None) -> None:
    if database_vendor != "sqlite":
        pytest.skip("REPLACE is SQLite's")
    customer = make_customer(credit=1_000)
    settle(Usage(customer, FIRST, prompt=10))
    ended = Reservation.objects.get()
    [running] = hold(Usage(customer, FIRST, prompt=10))

    refuses(
        Reservation,
        "UPDATE OR REPLACE billing_reservation SET id = %s WHERE id = %s",
        [ended.pk.hex, running.id.hex],
    )


def test_postgresql_truncates_nothing(model: type[Model], database_vendor: str) -> None:
    if database_vendor != "postgresql":
        pytest.skip("TRUNCATE is PostgreSQL's")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with events to come cannot be truncated
    refuses(model, f"TRUNCATE {model._meta.db_table} CASCADE")
    refuses(model, "TRUNCATE organization_organization CASCADE")


def test_postgresql_overwrites_no_row_in_a_conflict(model: type[Model], database_vendor: str) -> None:
    if database_vendor != "postgresql":
        pytest.skip("SQLite refuses the INSERT itself")
    pk = str(model._meta.pk.column)
    statement, values = copied(model, "INSERT", fresh=set())
    refuses(model, f"{statement} ON CONFLICT ({pk}) DO UPDATE SET {pk} = EXCLUDED.{pk}", values)


def test_a_grant_of_the_same_reference_is_not_replaced(database_vendor: str, db: None) -> None:
    if database_vendor != "sqlite":
        pytest.skip("REPLACE is SQLite's")
    customer = make_customer()
    services.grant_credit(
        organization=customer.organization, amount_nanousd=5, reference="invoice 1", actor=SOMEONE
    )
    statement, values = copied(CreditGrant, "INSERT OR REPLACE", fresh={"id"})
    refuses(CreditGrant, statement, values)
