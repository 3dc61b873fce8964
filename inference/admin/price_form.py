"""
The prices of a model as an operator types them: USD per million tokens, and per one of anything else.

What is typed is a whole card. Saving it adds a version to the model's prices and changes none.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.utils.text import capfirst
from msgspec import structs

from billing.models import PriceVersion
from billing.prices import versions
from billing.prices.card import PriceCard, Rate
from billing.prices.card_text import (
    COUNTS,
    EARLIEST_YEAR,
    LATEST_YEAR,
    MAX_COUNT,
    card_of,
    parse_part_price,
    part_price,
    read_tiers,
    unit_of,
    write_tiers,
)
from billing.prices.parts import PARTS, PricePart
from billing.prices.plausibility import problems
from gateway_site.api.errors import InvalidRequest
from gateway_site.console.kit.model_admin import (
    Checkbox,
    IntegerInput,
    OptimisticLockForm,
    Textarea,
    TextInput,
)

# The prices that most models have, and those that few have.
USUAL_PRICES = ("prompt", "completion", "cached")
OTHER_PRICES = tuple(part.name for part in PARTS if part.name not in USUAL_PRICES)
MAX_TIER_CHARACTERS = 4_000
COUNT_DEFAULTS: dict[str, int] = {
    field.name: field.default for field in structs.fields(PriceCard) if field.name in COUNTS
}
COUNT_HELP = {
    "image_tokens": "The most prompt tokens that the model counts for an image. A hold assumes them.",
    "file_tokens": "The most that it counts for a file or a clip of audio. A hold assumes them.",
    "web_searches": "The most searches that the model makes for a request. A hold assumes them.",
}


class PriceField(forms.CharField):
    """USD as a plain decimal; pico-USD inside. Nothing written is no price, which is not zero."""

    def __init__(self, part: PricePart) -> None:
        self.part = part
        super().__init__(
            required=False,
            widget=TextInput(attrs={"inputmode": "decimal", "placeholder": f"USD {unit_of(part)}"}),
            label=f"{capfirst(part.item)}, {'per million' if part.is_per_token else 'each'}",
            help_text=part.help_text,
            max_length=40,
        )

    def prepare_value(self, value: Any) -> Any:
        return part_price(self.part, value) if isinstance(value, int) else value

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            return parse_part_price(self.part, text)
        except ValueError as problem:
            raise forms.ValidationError(str(problem)) from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


class TiersField(forms.CharField):
    """Other prices for longer prompts, a line for each length."""

    def __init__(self) -> None:
        super().__init__(
            required=False,
            max_length=MAX_TIER_CHARACTERS,
            widget=Textarea(attrs={"rows": 3, "placeholder": "over 200000: prompt 6, completion 22.5"}),
            label="Tiers by prompt length",
            help_text="One a line, such as: over 200000: prompt 6, completion 22.5. The prices hold for the "
            "whole request whose prompt is longer.",
        )

    def clean(self, value: Any) -> Any:
        try:
            return read_tiers(super().clean(value))
        except InvalidRequest as problem:
            raise forms.ValidationError(problem.message) from None


class PriceForm(OptimisticLockForm):
    """
    The part of a model's form that is about prices.

    Implausible ones are not saved at first: the form comes back with what is odd about them and a box to
    confirm them. The box stands for the card that it was shown with, and for no other.
    """

    # In the body of a class `locals()` is the namespace that the class is made from.
    locals().update({part.name: PriceField(part) for part in PARTS})
    tiers = TiersField()
    locals().update(
        {
            name: forms.IntegerField(
                min_value=0,
                max_value=MAX_COUNT,
                required=False,
                initial=COUNT_DEFAULTS[name],
                widget=IntegerInput,
                help_text=COUNT_HELP[name],
            )
            for name in COUNTS
        }
    )
    valid_from = forms.DateTimeField(
        required=False,
        widget=TextInput(attrs={"type": "datetime-local"}),
        label="Valid from, UTC",
        help_text="When these prices begin to apply. Empty: now.",
    )
    confirmed = forms.CharField(required=False, widget=forms.HiddenInput, label="These prices are right")

    FIELDS = (*(part.name for part in PARTS), "tiers", *COUNTS, "valid_from", "confirmed")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A box once it was shown: what it sends is the digest of the card, and nothing is ticked for anybody.
        self.initial["confirmed"] = ""
        self.new_card: PriceCard | None = None
        self.is_confirmed = False
        if (card := self._card_in_force()) is not None:
            self.initial.update({name: rate.picousd for name, rate in card.rates.items()})
            self.initial.update({name: getattr(card, name) for name in COUNTS}, tiers=write_tiers(card))

    def state(self) -> Any:
        latest = PriceVersion.objects.filter(model=self.instance.pk).order_by("-created_at").first()
        in_force = versions.in_force_for(self.instance.pk)
        return {**super().state(), "prices": [version and version.pk for version in (latest, in_force)]}

    def clean_valid_from(self) -> datetime | None:
        moment: datetime | None = self.cleaned_data["valid_from"]
        if moment is not None and not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
            raise forms.ValidationError(f"Must be in a year from {EARLIEST_YEAR} to {LATEST_YEAR}.")
        return moment

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if any(name in self.errors for name in self.FIELDS):
            return cleaned
        card = self._card_typed(cleaned)
        before = self._card_in_force(cleaned["valid_from"])
        if card is not None and card != before:
            self.new_card = card
            self._ask_about(card, before)
        elif cleaned["valid_from"] and not self.errors:
            self.add_error("valid_from", "These are the prices at that time already: nothing would change.")
        return cleaned

    def _card_in_force(self, at: datetime | None = None) -> PriceCard | None:
        version = versions.in_force_for(self.instance.pk, at) if self.instance.pk else None
        return version.card if version else None

    def _card_typed(self, cleaned: dict[str, Any]) -> PriceCard | None:
        """The card that was typed; None where there is none, or where it has errors."""
        tiers = cleaned["tiers"]
        prices = {part.name: cleaned[part.name] for part in PARTS if cleaned[part.name] is not None}
        for name in tiers:
            if name not in prices:
                self.add_error("tiers", f"{name} has a tier, and no price for shorter prompts.")
        if not prices and self._card_in_force() is None:
            return None
        for part in PARTS:
            if not part.is_optional and part.name not in prices:
                self.add_error(part.name, "A model with prices needs this one. Zero is a price: free.")
        if self.errors:
            return None
        rates = {name: Rate(picousd, tiers.get(name, ())) for name, picousd in prices.items()}
        counts = {name: COUNT_DEFAULTS[name] if cleaned[name] is None else cleaned[name] for name in COUNTS}
        try:
            return card_of(rates, counts)
        except InvalidRequest as problem:
            self.add_error(None, problem.message)
            return None

    def _ask_about(self, card: PriceCard, before: PriceCard | None) -> None:
        """Show what is implausible and a box to confirm it, unless that box was ticked for this very card."""
        found = problems(card, before)
        self.is_confirmed = self.data.get(self.add_prefix("confirmed")) == card.checksum
        if found and not self.is_confirmed:
            box = Checkbox(attrs={"value": card.checksum}, check_test=lambda value: False)
            self.fields["confirmed"].widget = box
            self.add_error("confirmed", found)
