"""What models charged, and since when."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from billing.prices.card import CardVersion, PriceCard

# As long as the ids of the catalog's models.
MODEL_ID_LENGTH = 200
SOURCE_LENGTH = 200


class PriceVersion(models.Model):
    """
    A model's price card from a moment on, until a later version. Append-only.

    In force at a moment is the version with the latest `valid_from` that is not after it; of two with the
    same, the one that was made last. A request keeps the version that it was admitted under.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # The catalog's id of the model. No foreign key: a version outlives its model.
    model = models.CharField(max_length=MODEL_ID_LENGTH)
    valid_from = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    # Where the prices come from: a command, a person, a file, a price list with its version.
    source = models.CharField(max_length=SOURCE_LENGTH)
    # Of the card, by `PriceCard.checksum`.
    checksum = models.CharField(max_length=64)
    # A PriceCard as plain JSON.
    card_json = models.JSONField()

    class Meta:
        verbose_name = "price version"
        constraints = [
            models.CheckConstraint(name="price_version_model_not_empty", condition=~Q(model="")),
        ]
        indexes = [
            models.Index(name="price_version_in_force", fields=["model", "-valid_from", "-created_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.model} from {self.valid_from:%Y-%m-%d %H:%M}"

    @property
    def card(self) -> PriceCard:
        return PriceCard.from_json(self.card_json)

    @property
    def versioned_card(self) -> CardVersion:
        return CardVersion(self.pk, self.card)
