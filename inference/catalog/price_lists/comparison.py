"""
The catalog's prices beside those of the list: what is new, changed, the same, gone, refused or in dispute.

A model keeps the row of the list that its price came from: `--match` has to be said once. Its own counts
(the tokens that a hold assumes for an image or a file, the searches) are not the list's, and stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from fnmatch import fnmatchcase

import msgspec
from django.db.models import Prefetch
from django.utils import timezone
from msgspec import Struct, structs

from billing.models import PriceVersion
from billing.prices.card import PriceCard
from billing.prices.plausibility import problems
from billing.prices.versions import in_force
from gateway_site.api.errors import InvalidRequest
from inference.catalog.price_lists.differences import CONFIRMED_PERCENT, PriceDifference, differences
from inference.catalog.price_lists.entries import (
    DatedCard,
    DeployedName,
    Match,
    PriceAnswer,
    PriceAnswers,
    PriceQuestion,
)
from inference.catalog.price_lists.second_file import SecondFile
from inference.models import CatalogModel, Deployment

LIST_FAMILY = "genai-prices"


class PriceState(Enum):
    """What a row of the comparison says of a model."""

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    VANISHED = "vanished"
    DISAGREEING = "disagreeing"
    REFUSED = "refused"
    AMBIGUOUS = "ambiguous"
    UNMATCHED = "unmatched"


class PlannedVersion(Struct, frozen=True):
    """A version that would be added, and where it differs from what is in force then."""

    dated: DatedCard
    # Empty for the first price of a model.
    changes: tuple[PriceDifference, ...]


class ComparedModel(Struct, frozen=True):
    """One model of the catalog beside the list."""

    model: str
    state: PriceState
    # The list's rows, as `PROVIDER/ID`: one, none, or several that are ambiguous.
    row_ids: tuple[str, ...] = ()
    # Where the price in force came from, and which version it is. Empty: there is none.
    source: str = ""
    version: str = ""
    planned: tuple[PlannedVersion, ...] = ()
    disagreements: tuple[PriceDifference, ...] = ()
    # Why there is nothing to apply.
    reason: str = ""
    # Why somebody has to confirm it first.
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_applicable(self) -> bool:
        return bool(self.planned)


class Comparison(Struct, frozen=True):
    """Every model of the catalog that was asked for, beside a list."""

    list_name: str
    models: tuple[ComparedModel, ...]

    @property
    def digest(self) -> str:
        """A digest of all that is shown and would be applied."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


def questions(only: Iterable[str] = (), matches: Mapping[str, str] | None = None) -> list[PriceQuestion]:
    """What to ask a list: every model of the catalog, or those that one of these patterns fits."""
    matches, patterns = matches or {}, list(only)
    live = Deployment.objects.filter(is_enabled=True, backend__is_enabled=True).select_related("backend")
    catalog = CatalogModel.objects.prefetch_related(Prefetch("deployments", live, to_attr="live"))
    models = {model.pk: model for model in catalog.order_by("pk") if is_named(model.pk, patterns)}
    if unknown := sorted(set(matches) - set(models)):
        raise InvalidRequest(f"There is no model {unknown[0]!r} to match.", param="match")
    versions = in_force(models)
    return [
        PriceQuestion(
            model.pk,
            tuple(DeployedName(each.backend.base_url, each.upstream_id) for each in model.live),
            matches.get(model.pk) or _row_of_source(versions.get(model.pk)),
        )
        for model in models.values()
    ]


def is_named(model: str, patterns: list[str]) -> bool:
    """Whether a model's id fits one of these patterns; any does where there are none."""
    return not patterns or any(fnmatchcase(model, pattern) for pattern in patterns)


def compare(
    answers: PriceAnswers, second: SecondFile | None = None, now: datetime | None = None
) -> Comparison:
    """Put what the list says beside what is in force and what is stored for later."""
    moment = now or timezone.now()
    ids = [answer.model for answer in answers.answers]
    current = in_force(ids, moment)
    later: dict[str, list[PriceVersion]] = {}
    for version in PriceVersion.objects.filter(model__in=ids, valid_from__gt=moment).order_by(
        "valid_from", "created_at"
    ):
        later.setdefault(version.model, []).append(version)
    return Comparison(
        answers.list_name,
        tuple(
            _compared(answer, current.get(answer.model), later.get(answer.model, []), second)
            for answer in answers.answers
        ),
    )


def _compared(
    answer: PriceAnswer, current: PriceVersion | None, later: list[PriceVersion], second: SecondFile | None
) -> ComparedModel:
    row = ComparedModel(
        answer.model,
        PriceState.SAME,
        answer.row_ids,
        source=current.source if current else "",
        version=str(current.pk) if current else "",
        notes=answer.notes,
    )
    if answer.match is not Match.FOUND or answer.refusal:
        state, reason = _why_not(answer)
        return structs.replace(row, state=state, reason=reason)
    planned = _planned(answer.cards, current, later)
    disagreements = None if second is None else second.disagreements(answer.row_ids[0], answer.cards[0].card)
    notes = answer.notes
    if second is not None and disagreements is None:
        notes = (*notes, "The second file has no row to compare.")
    state = PriceState.NEW if current is None else PriceState.CHANGED if planned else PriceState.SAME
    return structs.replace(
        row,
        state=PriceState.DISAGREEING if disagreements else state,
        planned=tuple(planned),
        disagreements=tuple(disagreements or ()),
        doubts=tuple(_doubts(planned)),
        notes=notes,
    )


def _why_not(answer: PriceAnswer) -> tuple[PriceState, str]:
    if answer.match is Match.FOUND:
        return PriceState.REFUSED, answer.refusal
    if answer.match is Match.MISSING:
        return PriceState.VANISHED, f"The list has no row {answer.row_ids[0]} any more."
    if answer.match is Match.AMBIGUOUS:
        return PriceState.AMBIGUOUS, "Its deployments are in several rows; name one with --match."
    return PriceState.UNMATCHED, "No row of the list fits its deployments or its id."


def _planned(
    listed: tuple[DatedCard, ...], current: PriceVersion | None, later: list[PriceVersion]
) -> list[PlannedVersion]:
    """The versions that make the model's prices those of the list, now and on every day that either has."""
    before = current.card if current else None
    wanted = [DatedCard(each.valid_from, _with_counts_of(before, each.card)) for each in listed]
    planned: list[PlannedVersion] = []
    if version := _version(None, before, wanted[0].card):
        planned.append(version)
    # What will be in force, by its start: what is stored, then what is planned for the same moment.
    starts = {each.valid_from: each.card for each in later}
    days = {each.valid_from for each in wanted[1:]} | {
        each.valid_from for each in later if each.source.startswith(f"{LIST_FAMILY} ")
    }
    for day in sorted(day for day in days if day is not None):
        begun = [start for start in starts if start <= day]
        expected = starts[max(begun)] if begun else wanted[0].card
        due = [each.card for each in wanted if each.valid_from is None or each.valid_from <= day]
        if version := _version(day, expected, due[-1]):
            planned.append(version)
            starts[day] = due[-1]
    return planned


def _version(day: datetime | None, before: PriceCard | None, after: PriceCard) -> PlannedVersion | None:
    """The version that is to be added, or None where the prices are what they should be."""
    if before is None:
        return PlannedVersion(DatedCard(day, after), ())
    changes = differences(before, after)
    return PlannedVersion(DatedCard(day, after), tuple(changes)) if changes else None


def _with_counts_of(before: PriceCard | None, card: PriceCard) -> PriceCard:
    if before is None:
        return card
    searches = before.web_searches if "web_search" in before.rates else card.web_searches
    return structs.replace(
        card,
        image_tokens=before.image_tokens,
        file_tokens=before.file_tokens,
        web_searches=searches if "web_search" in card.rates else before.web_searches,
    )


def _doubts(planned: list[PlannedVersion]) -> list[str]:
    found = []
    if any(change.needs_confirmation for version in planned for change in version.changes):
        found.append(f"A price changes by more than {CONFIRMED_PERCENT} %.")
    for version in planned:
        found += problems(version.dated.card, None)
    return list(dict.fromkeys(found))


def _row_of_source(version: PriceVersion | None) -> str:
    """`PROVIDER/ID` of a source such as `genai-prices 0.2.1 PROVIDER/ID`; else empty."""
    words = version.source.split(" ", 2) if version else []
    return words[2] if len(words) == 3 and words[0] == LIST_FAMILY else ""
