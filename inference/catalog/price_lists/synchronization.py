"""Compare the catalog with the price list, and make versions of what somebody chose. Doors call this."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from django.db import transaction

from billing.models.prices import SOURCE_LENGTH
from billing.prices.versions import add_version
from gateway_site.api.errors import Conflict
from inference.catalog import served_models
from inference.catalog.price_lists.comparison import ComparedModel, Comparison, PriceState
from organization.audit.trail import Actor

LIBRARY = "genai_prices"
INSTALL_COMMAND = 'python -m pip install "genai-prices>=0.2.1" "rich>=14.3"'
NOT_INSTALLED = f"The price list is not installed. It is the extra [prices]: {INSTALL_COMMAND}"


def is_installed() -> bool:
    """Whether the library with the list is there, without importing it."""
    return find_spec(LIBRARY) is not None


def require_library() -> None:
    """Raise Conflict, which says how to install it, where the library is missing."""
    if not is_installed():
        raise Conflict(NOT_INSTALLED)


def choose(
    comparison: Comparison, *, named: Iterable[str], is_confirmed: bool
) -> tuple[list[ComparedModel], dict[str, str]]:
    """
    The models whose planned versions may be applied, and why those of the others may not, by model.

    What two lists disagree about is applied only to a model that is named by its full id; what is doubtful
    only where somebody has confirmed it.
    """
    chosen, left = [], {}
    for each in comparison.models:
        if not each.planned:
            continue
        if each.state is PriceState.DISAGREEING and each.model not in set(named):
            left[each.model] = "the second file disagrees; name it with --only"
        elif each.doubts and not is_confirmed:
            left[each.model] = "needs --yes"
        else:
            chosen.append(each)
    return chosen, left


def apply(models: Iterable[ComparedModel], list_name: str, actor: Actor) -> list[str]:
    """
    Add the planned versions of these models, all or none. Returns the ids of those that have new ones.

    Each version is in the audit trail, with the list's row as its source.
    """
    changed = []
    with transaction.atomic():
        for each in models:
            for version in each.planned:
                _, is_new = add_version(
                    model=each.model,
                    card=version.dated.card,
                    source=f"{list_name} {each.row_ids[0]}"[:SOURCE_LENGTH],
                    actor=actor,
                    valid_from=version.dated.valid_from,
                    # Whoever chose the model was shown its doubts; what has none must pass by itself.
                    is_confirmed=bool(each.doubts),
                )
                if is_new and each.model not in changed:
                    changed.append(each.model)
        if changed:
            transaction.on_commit(served_models.forget)
    return changed
