"""The words of every kind of event are billed where nothing is reported, and judged where a policy reads."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from msgspec import structs

from inference import events
from inference.events import Annotation, Event, Finish, ToolCallStart, Usage
from inference.serving.policy_checks import event_text
from inference.serving.usage_meter import UsageMeter

EVENT_TYPES = get_args(Event)
# Strings of an event that no model generated, and those that no reader sees as text.
NOT_BILLED = {
    ToolCallStart: {"id"},
    Annotation: {"url", "title"},
    Finish: {"reason"},
}
NOT_JUDGED = {ToolCallStart: {"id"}, Finish: {"reason"}}

EACH_EVENT = pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)


def sample(kind: Any) -> Any:
    """An event of this kind, with a word of its own in each string."""
    hints = get_type_hints(kind, vars(events))
    values = {
        field.name: f"<{field.name}>" if is_string(hints[field.name]) else 0 for field in structs.fields(kind)
    }
    return kind(**values)


def is_string(hint: Any) -> bool:
    return hint is str or any(part is str or isinstance(part, str) for part in get_args(hint))


def words_of(event: Any) -> set[str]:
    return {value for value in structs.asdict(event).values() if isinstance(value, str)}


@EACH_EVENT
def test_every_event_has_its_billable_text(kind: Any) -> None:
    event = sample(kind)
    free = {f"<{name}>" for name in NOT_BILLED.get(kind, set())}

    assert isinstance(vars(kind)["billable_text"], property)
    assert {word for word in words_of(event) if word in event.billable_text} == words_of(event) - free


@EACH_EVENT
def test_every_text_of_an_event_is_judged(kind: Any) -> None:
    event = sample(kind)
    _, judged = event_text(event) or (None, "")

    assert {word for word in words_of(event) if word in judged} == words_of(event) - {
        f"<{name}>" for name in NOT_JUDGED.get(kind, set())
    }


@pytest.mark.parametrize("kind", [kind for kind in EVENT_TYPES if kind is not Usage])
def test_the_meter_counts_what_is_billable(kind: Any) -> None:
    counted: list[str] = []

    def count_tokens(text: str) -> int:
        counted.append(text)
        return len(text)

    meter = UsageMeter(
        completions=1,
        images=0,
        likely_prompt=5,
        most_prompt=1_000,
        output_bound=100,
        count_tokens=count_tokens,
        alert=pytest.fail,
    )
    event = sample(kind)
    meter.count(event)

    assert meter.usage() == Usage(5, len(event.billable_text))
    assert counted == [event.billable_text] * bool(event.billable_text)
    assert meter.has_output == bool(event.billable_text)
