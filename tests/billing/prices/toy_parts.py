"""
A process in which a price has two parts more: pages of documents, and prompt tokens of video.

It prints what became of them as one JSON object. What it stores is rolled back.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from billing.prices import parts
from billing.prices.parts import PricePart

PAGE = PricePart(
    "page", "page", "document page", "page", quantity="pages", is_optional=True, help_text="Each."
)
VIDEO = PricePart(
    "video_input",
    "token",
    "video input",
    "input_video",
    quantity="video_input",
    within="prompt",
    is_optional=True,
)
PRICE = {"prompt": 1_000, "completion": 2_000, "cached": 500, "video_input": 3_000, "page": 7_000_000}
USED = {"prompt": 100, "cached": 20, "video_input": 30, "completion": 10, "pages": 2}
BOUNDS = {"prompt": 100, "completion": 10, "pages": 2}


def main() -> None:
    parts.PARTS = (*parts.PARTS, PAGE, VIDEO)
    parts.QUANTITIES = (*parts.QUANTITIES, PAGE.quantity, VIDEO.quantity)
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
    from billing.prices.bill import charge, lines
    from billing.prices.card import PriceCard
    from billing.prices.hold import hold_amount
    from billing.prices.price import Quantities

    card, used = PriceCard.flat(**PRICE), Quantities(**USED)
    cost = charge(card, used)
    return {
        "hold": hold_amount(card, Quantities(**BOUNDS)),
        "cost": cost,
        "bill": {line.item: [line.quantity, line.amount_nanousd] for line in lines(card, used, cost)},
    }


def migrated() -> dict[str, Any]:
    """The columns that `makemigrations` would add: none."""
    from django.apps import apps
    from django.db import connection
    from django.db.migrations.autodetector import MigrationAutodetector
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.state import ProjectState

    loader = MigrationLoader(connection)
    detector = MigrationAutodetector(loader.project_state(), ProjectState.from_apps(apps))
    migrations = [each for app in detector.changes(loader.graph).values() for each in app]
    operations = [operation for migration in migrations for operation in migration.operations]
    return {"migration": [each.describe() for each in operations]}


def stored() -> dict[str, Any]:
    """A request through the ledger's own statements: held, seen by a heartbeat, charged by that."""
    from django.db import connection, transaction

    from billing.ledger import batch
    from billing.ledger.operations import Expire, Heartbeat, Hold, LedgerLimits
    from billing.models import CostLine, Reservation
    from billing.prices.card import PriceCard
    from billing.prices.hold import hold_amount
    from billing.prices.price import Quantities
    from tests.billing.factories import make_customer, version_of

    with transaction.atomic():
        customer = make_customer(10**12)

        def run(operation: Any) -> Any:
            return batch.apply(batch.store_over(connection), [operation], LedgerLimits())().answers[0]

        card, bounds = PriceCard.flat(**PRICE), Quantities(**BOUNDS)
        hold = run(customer.request(hold_amount(card, bounds), version=version_of(card), bounds=bounds))
        assert isinstance(hold, Hold)
        is_alive = run(Heartbeat(hold.id, hold.organization_id, Quantities(**USED)))
        kept = Reservation.objects.get(pk=hold.id)
        outcome = run(Expire(hold.id, hold.organization_id, unrenewed_lease=kept.lease_expires_at))
        lines = CostLine.objects.filter(reservation_id=hold.id).order_by("id")
        seen = {
            "is_alive": is_alive,
            "is_price_kept": kept.price_version.card == card,
            "is_use_kept": kept.used_quantities == Quantities(**USED),
            "charged": outcome.charged_nanousd,
            "lines": {line.line_item: [line.quantity, line.amount_nanousd] for line in lines},
        }
        transaction.set_rollback(True)
    return seen


if __name__ == "__main__":
    main()
