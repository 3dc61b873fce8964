"""A comparison as plain values: for `sync_prices --json`, its table, and the console's page."""

from __future__ import annotations

from typing import Any

from billing.prices.card_text import card_changes
from inference.catalog.price_lists.comparison import ComparedModel, Comparison, PlannedVersion
from inference.catalog.price_lists.differences import PriceDifference


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """The whole comparison, with its digest."""
    return {
        "list": comparison.list_name,
        "digest": comparison.digest,
        "models": [model_as_json(each) for each in comparison.models],
    }


def model_as_json(compared: ComparedModel) -> dict[str, Any]:
    """One model of a comparison. Prices are strings: USD per million tokens, or per one of another unit."""
    return {
        "model": compared.model,
        "state": compared.state.value,
        "rows": list(compared.row_ids),
        "source": compared.source,
        "versions": [_version(each) for each in compared.planned],
        "disagreements": [_difference(each) for each in compared.disagreements],
        "reason": compared.reason,
        "doubts": list(compared.doubts),
        "notes": list(compared.notes),
    }


def _version(planned: PlannedVersion) -> dict[str, Any]:
    valid_from = planned.dated.valid_from
    changes = [_difference(each) for each in planned.changes]
    return {
        "valid_from": valid_from.isoformat() if valid_from else None,
        "card": planned.dated.card.to_json(),
        "changes": changes,
        "lines": [each["text"] for each in changes] or card_changes(None, planned.dated.card),
    }


def _difference(difference: PriceDifference) -> dict[str, Any]:
    return {
        "part": difference.part,
        "over": difference.over,
        "from": difference.before.removeprefix("$"),
        "to": difference.after.removeprefix("$"),
        "unit": difference.unit,
        "percent": difference.percent,
        "text": str(difference),
    }
