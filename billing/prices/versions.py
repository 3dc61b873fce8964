"""The versions of price cards: which is in force, and how a new one is added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from msgspec import structs

from billing.models import PriceVersion
from billing.models.prices import SOURCE_LENGTH
from billing.prices.card import PriceCard, Rate
from billing.prices.card_text import write_card
from billing.prices.plausibility import require_plausible
from gateway_site.api.errors import InvalidRequest
from organization.audit import trail
from organization.audit.trail import Actor


def in_force(model_ids: Iterable[str], at: datetime | None = None) -> dict[str, PriceVersion]:
    """The version of each model that is in force at a moment, now if none is given, by the model's id."""
    moment = at or timezone.now()
    begun = PriceVersion.objects.filter(valid_from__lte=moment)
    later = begun.filter(
        Q(valid_from__gt=OuterRef("valid_from"))
        | Q(valid_from=OuterRef("valid_from"), created_at__gt=OuterRef("created_at")),
        model=OuterRef("model"),
    )
    found = begun.filter(~Exists(later), model__in=list(model_ids)).order_by("pk")
    return {version.model: version for version in found}


def changed_card(before: PriceCard | None, prices: Mapping[str, int | None]) -> PriceCard | None:
    """
    The card with these base prices, in pico-USD by part; None takes an optional price away.

    Tiers stay as they are. None if nobody has given a price yet.
    """
    rates = {} if before is None else dict(before.rates)
    for name, picousd in prices.items():
        if picousd is None:
            rates.pop(name, None)
        else:
            rates[name] = Rate(picousd, rates[name].tiers if name in rates else ())
    if not rates and before is None:
        return None
    try:
        return PriceCard(rates) if before is None else structs.replace(before, rates=rates)
    except ValueError as problem:
        raise InvalidRequest(str(problem), param="prices") from None


def in_force_for(model_id: str, at: datetime | None = None) -> PriceVersion | None:
    return in_force([model_id], at).get(model_id)


def history(model_id: str) -> QuerySet[PriceVersion]:
    """Every version of a model, the one that applies last first."""
    return PriceVersion.objects.filter(model=model_id).order_by("-valid_from", "-created_at")


def add_version(
    *,
    model: str,
    card: PriceCard,
    source: str,
    actor: Actor,
    valid_from: datetime | None = None,
    is_confirmed: bool = False,
) -> tuple[PriceVersion, bool]:
    """
    Add a version that applies from `valid_from` on, from now if none is given.

    Returns the version, and whether it is new: a card equal to the one that is in force then is not stored
    again. Raises ImplausiblePrice for prices that are hardly meant, unless somebody has confirmed them.
    """
    moment = valid_from or timezone.now()
    if moment.tzinfo is None:
        raise InvalidRequest("A time needs a time zone, such as a Z at its end.", param="valid_from")
    if not 1 <= len(source) <= SOURCE_LENGTH or not source.isprintable():
        raise InvalidRequest(f"A source has 1 to {SOURCE_LENGTH} characters.", param="source")
    with transaction.atomic():
        before = in_force_for(model, moment)
        if before is not None and before.checksum == card.checksum:
            return before, False
        require_plausible(card, before.card if before else None, is_confirmed=is_confirmed, about=model)
        version = PriceVersion.objects.create(
            model=model,
            valid_from=moment,
            source=source,
            checksum=card.checksum,
            card_json=card.to_json(),
        )
        trail.record(
            actor,
            "price.change" if before else "price.create",
            version,
            organization=None,
            details={
                "model": model,
                "valid_from": moment.isoformat(),
                "source": source,
                "prices": write_card(card),
                **({"before": write_card(before.card)} if before else {}),
            },
        )
    return version, True
