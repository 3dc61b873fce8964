"""
Columns of the parts of a price, for the models that store prices and what was used.

    class Offer(models.Model):
        locals().update(price_columns())

In the body of a class `locals()` is the namespace that the class is made from.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from billing.prices.parts import PARTS, QUANTITIES, observed_column


def price_columns(**options: Any) -> dict[str, models.BigIntegerField]:
    """A column for the price of each part, in pico-USD."""
    return {part.price_column: models.BigIntegerField(**options) for part in PARTS}


def observed_columns() -> dict[str, models.BigIntegerField]:
    """A column for each quantity, null until a heartbeat has reported it."""
    return {observed_column(quantity): models.BigIntegerField(null=True) for quantity in QUANTITIES}


def prices_not_negative() -> Q:
    """The condition that each price is not set, or is zero or more."""
    condition = Q()
    for part in PARTS:
        condition &= Q(**{part.price_column: None}) | Q(**{f"{part.price_column}__gte": 0})
    return condition


def observed_whole_or_not_at_all() -> Q:
    """The condition that either every quantity was reported, or none."""
    columns = [observed_column(quantity) for quantity in QUANTITIES]
    return Q(**dict.fromkeys(columns)) | Q(**{f"{column}__gte": 0 for column in columns})
