"""Puts policies around a generation: which texts are judged, and when the backend may start."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Hashable

from django.conf import settings

from billing.models import EndedBy
from gateway_site.api.errors import JudgeUnavailable, PolicyViolation
from inference.dialects.texts import prompt_texts
from inference.events import (
    Annotation,
    Event,
    FunctionCallArguments,
    FunctionCallStart,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    WebSearch,
)
from inference.prompt import Prompt
from inference.serving.body_pool import SMALL, BodyWork
from inference.serving.generation import Generation
from policies.enforcement.answer_filter import filter_answer, release_after_check
from policies.enforcement.request_policies import RequestPolicies


async def with_policies(
    generation: Generation,
    *,
    policies: RequestPolicies,
    prompt: Prompt,
    is_streamed: bool,
    work: BodyWork = SMALL,
) -> AsyncGenerator[Event, None]:
    """
    Check the request's policies, and give the generation's events as far as those of the answer let them.

    Judged first: not a byte of the prompt leaves before the verdict of the enforcing request policies. With
    GATEWAY_JUDGE_SPECULATIVELY the backend starts while the request is being judged, unless it could do
    something in the world; a refused prompt has then reached the backend. Either way nothing of the answer is
    shown before the verdict, and a request that is refused costs its sender nothing.
    """

    async def check() -> None:
        began = time.monotonic()
        try:
            texts = [await work.run(_text_of_prompt, prompt)] if policies.has_request_policies else []
            await policies.check_request(texts, is_readable=_is_readable(prompt))
        except (PolicyViolation, JudgeUnavailable):
            generation.waive_charge()
            raise
        generation.trace.record_step("judge", began)

    async def check_answer(text: str) -> None:
        try:
            await policies.check_answer(text)
        except (PolicyViolation, JudgeUnavailable):
            generation.note_end(EndedBy.POLICY)
            raise

    events = generation.events()
    is_speculative = settings.GATEWAY_JUDGE_SPECULATIVELY and not prompt.may_have_side_effects
    if policies.blocks_request and is_speculative:
        events = release_after_check(check, events)
    else:
        await check()
    return filter_answer(
        events, policies=policies, describe=event_text, is_streamed=is_streamed, check_answer=check_answer
    )


def event_text(event: Event) -> tuple[Hashable, str] | None:
    """Which text an event adds to, and what. Two choices, or two calls, are never read as one text."""
    match event:
        case TextDelta(index, text):
            return (index, "text"), text
        case ReasoningDelta(index, text):
            return (index, "reasoning"), text
        case RefusalDelta(index, text):
            return (index, "refusal"), text
        case ToolCallStart(index, call, _, name, arguments):
            # The name ends with a line, so that it is not read into the arguments.
            return (index, "call", call), f"{name}\n{arguments}"
        case ToolCallArguments(index, call, text):
            return (index, "call", call), text
        case FunctionCallStart(index, name, arguments):
            return (index, "function"), f"{name}\n{arguments}"
        case FunctionCallArguments(index, text):
            return (index, "function"), text
        case WebSearch(index, query):
            return (index, "search"), f"{query}\n"
        case Annotation(index, url, title):
            return (index, "annotations"), f"{title}\n{url}\n"
        case _:
            return None


def _text_of_prompt(prompt: Prompt) -> str:
    """One text of all the prompt's, joined as `check_request` would."""
    return "\n".join(prompt_texts(prompt))


def _is_readable(prompt: Prompt) -> bool:
    """Whether all of the prompt is text. No judge here reads an image, a file or a sound."""
    return not prompt.images and "other_input" not in prompt.options_used
