"""Requests and prices that an earlier version stored are charged, read and guarded as before."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from billing.models import CostLine, Reservation
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from billing.prices.versions import in_force_for
from organization.models import Organization, Project
from tests.billing.factories import Customer, make_key

BEFORE = [("billing", "0005_never_replaced"), ("inference", "0006_tokenizer_never_blank")]
PRICES = {"prompt": 1_000, "completion": 2_000, "cached": 500, "image": 0, "request": 0}
COLUMNS = {f"{name}_price_picousd": picousd for name, picousd in PRICES.items()}


def migrate(targets: list[tuple[str, str]]) -> Any:
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return executor.loader.project_state(targets).apps


@pytest.fixture
def earlier(transactional_db: None) -> Iterator[Any]:
    """The models as they were while every request carried its prices."""
    graph = MigrationExecutor(connection).loader.graph
    newest = graph.leaf_nodes()
    yield migrate(BEFORE)
    migrate(newest)


def make_books(earlier: Any) -> Customer:
    """A customer with one settled request of 72 nano-USD, and two that hold 1,000 each."""
    organization = Organization.objects.create(name="Earlier")
    project = Project.objects.create(organization=organization, name="Web")
    customer = Customer(organization, project, make_key(project))
    account = earlier.get_model("billing", "Account").objects.create(
        organization_id=organization.pk, granted_nanousd=9_000, held_nanousd=2_000, settled_nanousd=72
    )
    earlier.get_model("billing", "CreditGrant").objects.create(account=account, amount_nanousd=9_000)
    earlier.get_model("billing", "KeyMeter").objects.create(
        api_key_id=customer.key.pk, live_holds=2, window_starts_at=timezone.now()
    )
    return customer


def admit(earlier: Any, customer: Customer, **columns: Any) -> Any:
    now = timezone.now()
    return earlier.get_model("billing", "Reservation").objects.create(
        **{
            "id": uuid.uuid4(),
            "organization_id": customer.organization.pk,
            "project_id": customer.project.pk,
            "api_key_id": customer.key.pk,
            "model": "gpt",
            "state": "held",
            "reserved_nanousd": 1_000,
            "admitted_at": now,
            "dispatched_at": now,
            "lease_expires_at": now + timedelta(hours=1),
            "deadline_at": now,
            **COLUMNS,
            **columns,
        }
    )


@pytest.mark.slow
def test_requests_of_an_earlier_version_keep_price_and_usage(earlier: Any) -> None:
    graph = MigrationExecutor(connection).loader.graph
    newest = graph.leaf_nodes()
    customer = make_books(earlier)
    settled = admit(
        earlier, customer, state="settled", basis="usage", charged_nanousd=72, resolved_at=timezone.now()
    )
    for item, quantity, amount in (("prompt", 50, 50), ("cached prompt", 4, 2), ("completion", 10, 20)):
        cost = {
            "organization_id": customer.organization.pk,
            "project_id": customer.project.pk,
            "api_key_id": customer.key.pk,
            "day": settled.admitted_at.date(),
            "line_item": f"gpt, {item}",
            "quantity": quantity,
            "amount_nanousd": amount,
        }
        earlier.get_model("billing", "CostLine").objects.create(reservation_id=settled.pk, **cost)
        earlier.get_model("billing", "UnrolledCost").objects.create(lines=1, **cost)
    seen = {"observed_prompt": 9, "observed_cached": 1, "observed_completion": 3, "observed_images": 0}
    running = admit(earlier, customer, **seen)
    cheaper = admit(earlier, customer, **{**COLUMNS, "prompt_price_picousd": 5})
    earlier.get_model("inference", "CatalogModel").objects.create(id="gpt", **COLUMNS)
    earlier.get_model("inference", "CatalogModel").objects.create(id="unpriced")

    migrate(newest)

    row = Reservation.objects.get(pk=settled.pk)
    card = PriceCard.flat(prompt=1_000, completion=2_000, cached=500)
    assert row.price_version.card == card
    assert row.price_version.checksum == card.checksum
    assert row.used_quantities == Quantities(prompt=54, cached=4, completion=10)
    assert Reservation.objects.get(pk=running.pk).used_quantities == Quantities(
        prompt=9, cached=1, completion=3
    )
    assert Reservation.objects.get(pk=cheaper.pk).price_version.card.rates["prompt"].picousd == 5
    assert {line.admitted_at for line in CostLine.objects.all()} == {row.admitted_at}
    now_in_force = in_force_for("gpt")
    assert now_in_force is not None
    assert now_in_force.card == card
    assert in_force_for("unpriced") is None
    for statement in (
        lambda: Reservation.objects.filter(pk=settled.pk).update(charged_nanousd=0),
        lambda: Reservation.objects.filter(pk=running.pk).delete(),
        lambda: CostLine.objects.update(amount_nanousd=0),
        lambda: Reservation.objects.filter(pk=running.pk).update(reserved_nanousd=5),
    ):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            statement()
