"""Policies hold wherever a text hides, on both endpoints, whole and streamed, with the same verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from billing.models import Reservation
from inference.events import (
    Annotation,
    Finish,
    FunctionCallArguments,
    FunctionCallStart,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
    WebSearch,
)
from inference.serving.policy_checks import event_text
from organization.models import Organization
from policies import services
from policies.enforcement.judging import score_cache
from policies.models import Policy, Verdict
from policies.verdicts.writer import writer as verdicts
from tests.factories import SOMEONE
from tests.harness.client import Answer
from tests.harness.error_checks import assert_error
from tests.inference.customer import ApiCustomer
from tests.inference.serving.policy_requests import SAID, USER, ask, publish
from tests.policies.factories import PHRASE, RULE

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}

# Where a phrase can hide in a chat request: fields beside the model.
CHAT_REQUESTS: dict[str, dict[str, Any]] = {
    "user": {"messages": [{"role": "user", "content": SAID}]},
    "system": {"messages": [{"role": "system", "content": SAID}, USER]},
    "developer": {"messages": [{"role": "developer", "content": SAID}, USER]},
    "earlier turn": {
        "messages": [{"role": "user", "content": SAID}, {"role": "assistant", "content": "ok"}, USER]
    },
    "part": {"messages": [{"role": "user", "content": [{"type": "text", "text": SAID}]}]},
    "two parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": SAID}, {"type": "text", "text": "x"}]}
        ]
    },
    "name": {"messages": [{**USER, "name": PHRASE}]},
    "reasoning": {"messages": [{"role": "assistant", "content": "ok", "reasoning_content": SAID}, USER]},
    "tool call": {
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "f", "arguments": json.dumps({"a": PHRASE})},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ]
    },
    "tool result": {
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": SAID},
        ]
    },
    "tool definition": {
        "messages": [USER],
        "tools": [{"type": "function", "function": {**FUNCTION, "description": SAID}}],
    },
    "schema": {
        "messages": [USER],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object", "description": SAID}},
        },
    },
    "full width and zero width": {"messages": [{"role": "user", "content": "\uff49nternal on\u200bly"}]},
}
RESPONSES_REQUESTS: dict[str, dict[str, Any]] = {
    "input": {"input": SAID},
    "instructions": {"input": "hello", "instructions": SAID},
    "item": {"input": [{"role": "user", "content": [{"type": "input_text", "text": SAID}]}]},
    "call output": {
        "input": [
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": SAID},
        ]
    },
    "tool definition": {"input": "hello", "tools": [{"type": "function", **FUNCTION, "description": SAID}]},
}


@pytest.fixture(autouse=True)
def _nothing_judged_before() -> None:
    score_cache.clear()


def assert_refused(answer: Answer, policy: Policy) -> None:
    """A policy error, as a status or as the last record, and not a byte of what it forbids."""
    assert b"internal" not in answer.body  # the first half, since a stream sends the phrase in pieces
    if answer.status == 200:
        records = [json.loads(line[6:]) for line in answer.body.split(b"\n") if line.startswith(b"data: {")]
        (error,) = [record["error"] for record in records if record.get("error")]
    else:
        assert_error(answer, 403, "policy_violation")
        error = answer.error
    assert error["type"] == "policy_error"
    assert str(policy.pk) in error["message"]
    assert RULE not in error["message"]


@BOTH
@pytest.mark.parametrize("hidden_in", CHAT_REQUESTS)
def test_a_forbidden_chat_request_is_refused_wherever_it_hides(
    customer: ApiCustomer, hidden_in: str, stream: bool
) -> None:
    customer.simulate("echo")
    policy = publish(customer.project.organization, direction="request")

    answer = ask(customer, "/v1/chat/completions", stream=stream, **CHAT_REQUESTS[hidden_in])

    assert answer.status == 403
    assert_refused(answer, policy)
    assert customer.reservation().state == Reservation.State.RELEASED
    assert customer.account.settled_nanousd == 0


@BOTH
@pytest.mark.parametrize("hidden_in", RESPONSES_REQUESTS)
def test_a_forbidden_responses_request_is_refused_wherever_it_hides(
    customer: ApiCustomer, hidden_in: str, stream: bool
) -> None:
    customer.simulate("echo")
    policy = publish(customer.project.organization, direction="request")

    answer = ask(customer, "/v1/responses", stream=stream, **RESPONSES_REQUESTS[hidden_in])

    assert answer.status == 403
    assert_refused(answer, policy)
    assert customer.reservation().state == Reservation.State.RELEASED


@BOTH
@pytest.mark.parametrize("direction", ["request", "response", "both"])
@pytest.mark.parametrize("endpoint", ["/v1/chat/completions", "/v1/responses"])
def test_what_no_policy_matches_passes_unchanged(
    customer: ApiCustomer, endpoint: str, direction: str, stream: bool
) -> None:
    customer.simulate("echo")
    fields = {"messages": [USER]} if "chat" in endpoint else {"input": "hello"}
    publish(customer.project.organization, direction=direction)

    answer = ask(customer, endpoint, stream=stream, **fields)

    assert answer.status == 200
    assert b"hello" in answer.body
    assert customer.reservation().state == Reservation.State.SETTLED


@BOTH
@pytest.mark.parametrize("endpoint", ["/v1/chat/completions", "/v1/responses"])
def test_a_forbidden_answer_never_leaves_and_is_paid_for(
    customer: ApiCustomer, endpoint: str, stream: bool, settings: Any
) -> None:
    settings.GATEWAY_JUDGE_WINDOW_CHARACTERS = 40  # several windows before the phrase, which is cut in two
    customer.simulate("echo")
    policy = publish(customer.project.organization, direction="response")
    text = "nothing to see here, " * 10 + SAID
    fields = {"messages": [{"role": "user", "content": text}]} if "chat" in endpoint else {"input": text}

    answer = ask(customer, endpoint, stream=stream, **fields)

    assert_refused(answer, policy)
    assert answer.status == (200 if stream else 403)
    assert customer.reservation().state == Reservation.State.SETTLED
    assert customer.account.settled_nanousd > 0


@BOTH
def test_every_choice_is_judged(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("echo")
    policy = publish(customer.project.organization, direction="response")

    answer = ask(customer, "/v1/chat/completions", n=3, stream=stream, **CHAT_REQUESTS["user"])

    assert_refused(answer, policy)


@BOTH
def test_the_arguments_of_a_call_are_judged(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("echo")
    policy = publish(customer.project.organization, direction="response")
    parameters = {"type": "object", "properties": {"a": {"const": PHRASE}}, "required": ["a"]}
    tool = {"type": "function", "function": {**FUNCTION, "parameters": parameters}}

    answer = ask(
        customer,
        "/v1/chat/completions",
        messages=[USER],
        tools=[tool],
        tool_choice="required",
        stream=stream,
    )

    assert_refused(answer, policy)


@BOTH
def test_a_question_that_nobody_can_answer_is_a_503_and_costs_nothing(
    customer: ApiCustomer, stream: bool
) -> None:
    customer.simulate("echo")
    publish(customer.project.organization, rule="Is this rude?", direction="request")

    answer = ask(customer, "/v1/chat/completions", messages=[USER], stream=stream)

    assert_error(answer, 503, "policy_not_judged")
    assert customer.reservation().state == Reservation.State.RELEASED


def test_an_image_cannot_be_judged_and_so_does_not_pass(customer: ApiCustomer) -> None:
    customer.simulate("echo", input_modalities=["text", "image"])
    publish(customer.project.organization, direction="request")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

    answer = ask(customer, "/v1/chat/completions", messages=[{"role": "user", "content": [picture]}])

    assert_error(answer, 503, "policy_not_judged")


@BOTH
def test_a_monitoring_policy_records_and_lets_pass(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("echo")
    publish(customer.project.organization, mode="monitoring", direction="request")

    answer = ask(customer, "/v1/chat/completions", stream=stream, **CHAT_REQUESTS["user"])

    assert answer.status == 200
    assert b"internal" in answer.body


def test_a_refusal_is_recorded_without_the_text(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    policy = publish(customer.project.organization, direction="request")

    answer = ask(customer, "/v1/chat/completions", **CHAT_REQUESTS["user"])

    verdicts.flush()
    verdict = Verdict.objects.get()
    assert verdict.version.policy_id == policy.pk
    assert str(verdict.request_id) == answer.headers["x-request-id"]
    assert PHRASE not in str(Verdict.objects.values().get())


def test_a_request_may_name_further_policies(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    policy = publish(customer.project.organization, direction="request", scope="unattached")
    fields = CHAT_REQUESTS["user"]

    assert ask(customer, "/v1/chat/completions", **fields).status == 200
    named = ask(customer, "/v1/chat/completions", policy_ids=[str(policy.pk)] * 3, **fields)

    assert named.status == 403
    assert_refused(named, policy)


def test_a_strangers_policy_cannot_be_named(customer: ApiCustomer, rival: Organization) -> None:
    customer.simulate("echo")
    theirs = publish(rival, direction="request")
    nobodys = "00000000-0000-4000-8000-000000000000"

    answers = [
        ask(customer, "/v1/chat/completions", policy_ids=[identifier], messages=[USER])
        for identifier in (str(theirs.pk), nobodys)
    ]

    assert [answer.status for answer in answers] == [404, 404]
    messages = [answer.error["message"].replace(str(theirs.pk), nobodys) for answer in answers]
    assert messages[0] == messages[1]


def test_a_paused_policy_stops_nothing_from_then_on(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    policy = publish(customer.project.organization, direction="request")
    fields = CHAT_REQUESTS["user"]
    assert ask(customer, "/v1/chat/completions", **fields).status == 403

    services.pause_policy(policy=policy, actor=SOMEONE)

    assert ask(customer, "/v1/chat/completions", **fields).status == 200


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (TextDelta(0, "x"), "x"),
        (ReasoningDelta(0, "x"), "x"),
        (RefusalDelta(0, "x"), "x"),
        (ToolCallStart(0, 1, "id", "name", "x"), "name\nx"),
        (ToolCallArguments(0, 1, "x"), "x"),
        (FunctionCallStart(0, "name", "x"), "name\nx"),
        (FunctionCallArguments(0, "x"), "x"),
        (WebSearch(0, "x"), "x\n"),
        (Annotation(0, "url", "title", 0, 1), "title\nurl\n"),
    ],
)
def test_every_event_that_carries_text_is_described(event: Any, text: str) -> None:
    described = event_text(event)

    assert described is not None
    assert described[1] == text


def test_what_carries_none_is_not() -> None:
    assert event_text(Finish(0, "stop")) is None
    assert event_text(Usage(1, 1)) is None
