"""Admits a request: its model, its options, its size, its output bound, and a hold for what it can cost."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.conf import settings
from msgspec import Struct, structs

from billing.ledger.ledger import get_ledger
from billing.ledger.operations import Hold, HoldRequest
from billing.prices.hold import hold_amount
from billing.prices.price import Quantities
from gateway_site.api.errors import ContextLengthExceeded, UnsupportedOption
from inference import tokenizer
from inference.backends.base import require_options
from inference.catalog import served_models
from inference.catalog.served_models import ServedModel, Target
from inference.prompt import Prompt
from inference.serving import affinity
from inference.serving.body_pool import SMALL, BodyWork
from inference.serving.load_balancing.load_balancer import load_balancer
from inference.tokenizer import PromptSize
from organization.models import ProjectKey


class Admission(Struct, frozen=True):
    """A request that may run: its credit is held."""

    hold: Hold
    # With the bound and the hints as the backends are to see them.
    prompt: Prompt
    # Those that can do what the prompt asks for, the first choice first.
    targets: Sequence[Target]
    size: PromptSize
    # More than its prompt can have, by the model and by its length.
    most_prompt: int
    is_dispatched: bool = True


async def admit(
    prompt: Prompt,
    *,
    key: ProjectKey,
    session: str | None,
    request_id: uuid.UUID,
    is_judged_first: bool,
    work: BodyWork = SMALL,
) -> Admission:
    """
    Resolve the model, check the prompt against it, and hold what the answer can cost at most.

    Where policies are judged before a byte may leave, the hold is marked as dispatched by whoever sends
    it; otherwise one transaction says both.
    """
    model = await served_models.served_model(prompt.model, key)
    hints, session_affinity = affinity.isolate_hints(key, prompt.cache, session)
    targets = _capable(prompt, model, load_balancer.targets_in_order(model, session_affinity))
    card = model.version.card
    size = await tokenizer.size_of(
        prompt, model.tokenizer, is_exact=model.is_tokenizer_exact, card=card, work=work
    )
    prompt = structs.replace(prompt, output_bound=_output_bound(prompt, model, size), cache=hints)
    bounds = Quantities(
        prompt=size.upper,
        completion=prompt.output_bound * prompt.completions,
        images=prompt.images,
        # One costs as much as thousands of tokens: held only where something may search.
        web_searches=card.web_searches if card.web_searches and prompt.may_have_side_effects else 0,
    )
    # Nothing is awaited after this: a hold that was given is in the hands of whoever settles it.
    hold = await get_ledger().reserve(
        HoldRequest(
            request_id=request_id,
            organization_id=key.project.organization_id,
            project_id=key.project_id,
            key_id=key.pk,
            amount_nanousd=hold_amount(card, bounds),
            model=model.id,
            version=model.version,
            bounds=bounds,
            key_digests=key.presented_digests,
            choices=prompt.completions,
            deadline_seconds=settings.GATEWAY_DEADLINE_SECONDS,
            is_dispatched=not is_judged_first,
        )
    )
    most_prompt = max(model.context_length, size.upper)
    return Admission(hold, prompt, targets, size, most_prompt, is_dispatched=not is_judged_first)


def _capable(prompt: Prompt, model: ServedModel, targets: Sequence[Target]) -> Sequence[Target]:
    """Those targets whose backends have every option that the prompt uses; UnsupportedOption if none does."""
    if not prompt.options_used:
        return targets
    image_field = prompt.options_used.get("image_input")
    if image_field is not None and model.input_modalities and "image" not in model.input_modalities:
        raise UnsupportedOption(param=image_field)
    # A card has one price, and providers charge another for a service tier that is asked for.
    if (tier_field := prompt.options_used.get("service_tier")) is not None:
        raise UnsupportedOption(param=tier_field)
    capable = [target for target in targets if target.backend.lacks.isdisjoint(prompt.options_used)]
    if not capable:
        require_options(prompt, targets[0].backend.lacks)
    return capable


def _output_bound(prompt: Prompt, model: ServedModel, size: PromptSize) -> int:
    bound = min(prompt.output_bound, model.max_output_length)
    if not model.is_tokenizer_exact:
        # Another vocabulary's count does not say that there are too many: the backend will.
        return bound
    room = model.context_length - size.likely
    if room < 1:
        raise ContextLengthExceeded(tokens=size.likely, limit=model.context_length)
    return min(bound, room)
