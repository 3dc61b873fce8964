"""
A process in which a price has two parts more: web searches, and prompt tokens written to a cache.

It prints what became of them as one JSON object. What it stores is rolled back, with the columns that
a migration would have added.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from billing.prices import parts
from billing.prices.parts import PricePart

SEARCH = PricePart(
    "search", "search", "web search", "web_search", quantity="searches", is_optional=True, help_text="Each."
)
WRITE = PricePart(
    "cache_write",
    "token",
    "cache write",
    "input_cache_write",
    quantity="cache_written",
    within="prompt",
    is_optional=True,
)
PRICE = {"prompt": 1_000, "completion": 2_000, "cached": 500, "cache_write": 3_000, "search": 7_000_000}
USED = {"prompt": 100, "cached": 20, "cache_written": 30, "completion": 10, "searches": 2}
BOUNDS = {"prompt_upper": 100, "completion_bound": 10, "searches": 2}


def main() -> None:
    parts.PARTS = (*parts.PARTS, SEARCH, WRITE)
    parts.QUANTITIES = (*parts.QUANTITIES, SEARCH.quantity, WRITE.quantity)
    import django

    django.setup()
    seen = {**declared(), **computed(), **migrated(), **stored()}
    sys.stdout.write(json.dumps(seen))


def declared() -> dict[str, Any]:
    """Where operators and clients meet the parts: options, form fields, keys."""
    from inference.admin.forms import ModelForm
    from inference.management.commands.add_model import Command
    from inference.serializers import ModelPricing

    parser = Command().create_parser("manage.py", "add_model")
    return {
        "options": [option for action in parser._actions for option in action.option_strings],
        "form": {name: str(field.help_text) for name, field in ModelForm.base_fields.items()},
        "pricing": list(ModelPricing().fields),
    }


def computed() -> dict[str, Any]:
    """The arithmetic: what is held, and the lines of the bill."""
    from billing.prices.bill import bill
    from billing.prices.hold import hold_amount
    from billing.prices.price import Price, Quantities

    cost, lines = bill(Price(**PRICE), Quantities(**USED), 10**9)
    return {
        "hold": hold_amount(Price(**PRICE), **BOUNDS),
        "cost": cost,
        "bill": {line.item: [line.quantity, line.amount_nanousd] for line in lines},
    }


def migrated() -> dict[str, Any]:
    """The columns that `makemigrations` would add."""
    from django.apps import apps
    from django.db import connection
    from django.db.migrations.autodetector import MigrationAutodetector
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.operations import AddField
    from django.db.migrations.state import ProjectState

    loader = MigrationLoader(connection)
    detector = MigrationAutodetector(loader.project_state(), ProjectState.from_apps(apps))
    migrations = [each for app in detector.changes(loader.graph).values() for each in app]
    operations = [operation for migration in migrations for operation in migration.operations]
    added = [each for each in operations if isinstance(each, AddField)]
    return {"migration": sorted(f"{each.model_name}.{each.name}" for each in added)}


def stored() -> dict[str, Any]:
    """A request through the ledger's own statements: held, seen by a heartbeat, charged by that."""
    from django.db import connection, transaction

    from billing.ledger import batch
    from billing.ledger.operations import Expire, Heartbeat, Hold, LedgerLimits
    from billing.models import CostLine, Reservation
    from billing.prices.hold import hold_amount
    from billing.prices.price import Price, Quantities
    from tests.billing.factories import make_customer

    with transaction.atomic():
        with connection.cursor() as cursor:
            for part in (SEARCH, WRITE):
                for column in (part.price_column, parts.observed_column(part.quantity)):
                    cursor.execute(f"ALTER TABLE billing_reservation ADD COLUMN {column} bigint")
        customer = make_customer(10**12)

        def run(operation: Any) -> Any:
            return batch.apply(batch.store_over(connection), [operation], LedgerLimits())().answers[0]

        price = Price(**PRICE)
        hold = run(customer.request(hold_amount(price, **BOUNDS), price=price))
        assert isinstance(hold, Hold)
        is_alive = run(Heartbeat(hold.id, hold.organization_id, Quantities(**USED)))
        kept = Reservation.objects.get(pk=hold.id)
        outcome = run(Expire(hold.id, hold.organization_id, unrenewed_lease=kept.lease_expires_at))
        lines = CostLine.objects.filter(reservation_id=hold.id).order_by("id")
        seen = {
            "is_alive": is_alive,
            "is_price_kept": kept.price == price,
            "is_use_kept": kept.observed == Quantities(**USED),
            "charged": outcome.charged_nanousd,
            "lines": {line.line_item: [line.quantity, line.amount_nanousd] for line in lines},
        }
        transaction.set_rollback(True)
    return seen


if __name__ == "__main__":
    main()
