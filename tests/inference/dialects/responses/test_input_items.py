"""A client without memory on our side sends the whole conversation, with what it was answered before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from gateway_site.api.errors import InvalidRequest
from inference.dialects.responses import parse
from inference.events import Event
from inference.prompt import ImagePart, OtherPart, TextPart, ToolCall, Turn
from tests.inference.dialects.responses.events import answers
from tests.inference.dialects.responses.sdk import INFO, body_of, parse_request, read_json

# The SDK makes its types when it first needs them, and checks every event against all of them.
FEW = settings(deadline=None, max_examples=40)
PIXEL = "data:image/png;base64,iVBORw0KGgo="
USER = {"role": "user", "content": "hi"}
THOUGHT: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "status": None,
    "encrypted_content": "think",
}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"}
CALL_2 = {**CALL, "call_id": "c2", "id": "fc_2"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
OUTPUT_2 = {**OUTPUT, "call_id": "c2"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "A", "annotations": [], "logprobs": [], "parsed": None}],
}


def turns(*items: Any) -> tuple[Turn, ...]:
    return parse_request(input=list(items)).prompt.turns


def refused(*items: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        parse_request(input=list(items))
    return raised.value


def test_it_works() -> None:
    assert turns(USER, THOUGHT, CALL, OUTPUT, SAID) == (
        Turn(role="user", content="hi"),
        Turn(role="assistant", reasoning="think", tool_calls=(ToolCall("c1", "f", "{}"),)),
        Turn(role="tool", tool_call_id="c1", content="42"),
        Turn(role="assistant", content="A"),
    )


@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
def test_a_message_needs_no_type(role: str) -> None:
    assert turns({"role": role, "content": "x"}) == (Turn(role=role, content="x"),)  # type: ignore[arg-type]
    assert turns({"type": "message", "role": role, "content": "x"}) == turns({"role": role, "content": "x"})


def test_calls_made_together_are_one_turn() -> None:
    (_, made, *answers) = turns(USER, SAID, CALL, CALL_2, OUTPUT, OUTPUT_2)

    assert made.content == "A"
    assert [call.id for call in made.tool_calls] == ["c1", "c2"]
    assert [turn.tool_call_id for turn in answers] == ["c1", "c2"]


def test_calls_made_one_after_the_other_are_two() -> None:
    made = [turn for turn in turns(USER, CALL, OUTPUT, CALL_2, OUTPUT_2) if turn.role == "assistant"]

    assert [[call.id for call in turn.tool_calls] for turn in made] == [["c1"], ["c2"]]


def test_no_call_is_parted_from_its_answer_by_what_was_thought_or_said_after_it() -> None:
    (_, made, answer) = turns(USER, THOUGHT, CALL, THOUGHT, SAID, OUTPUT)

    assert made.reasoning == "think\n\nthink"
    assert (made.content, len(made.tool_calls)) == ("A", 1)
    assert answer.role == "tool"


def test_two_answers_in_a_row_stay_two() -> None:
    assert [turn.reasoning for turn in turns(SAID, THOUGHT, SAID)] == [None, "think"]
    assert len(turns(SAID, SAID)) == 2


def test_thoughts_that_led_to_nothing_are_no_turn() -> None:
    assert turns(USER, THOUGHT, USER) == (Turn(role="user", content="hi"),) * 2


def test_thoughts_are_read_from_where_they_are() -> None:
    text = {**THOUGHT, "encrypted_content": None, "content": [{"type": "reasoning_text", "text": "all"}]}
    summary = {**THOUGHT, "encrypted_content": None, "summary": [{"type": "summary_text", "text": "short"}]}

    assert turns(text, SAID)[0].reasoning == "all"
    assert turns(summary, SAID)[0].reasoning == "short"


def test_what_was_not_sealed_here_is_refused() -> None:
    def unseal(sealed: str) -> str:
        raise ValueError

    body = json.dumps({"model": "m", "input": [USER, THOUGHT, SAID]}).encode()

    with pytest.raises(InvalidRequest) as raised:
        parse.parse(body, unseal=unseal)

    assert raised.value.param == "input[1].encrypted_content"


def test_a_search_made_earlier_is_taken_and_left_out() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}

    assert turns(USER, search, SAID) == turns(USER, SAID)


def test_a_refusal_said_earlier_goes_on_as_words() -> None:
    refusal = {**SAID, "content": [{"type": "refusal", "refusal": "No."}]}

    assert turns(USER, refusal)[1].content == "No."


def test_parts_of_a_message() -> None:
    parts = [
        {"type": "input_text", "text": "what is this"},
        {"type": "input_image", "image_url": PIXEL, "detail": "low"},
        {"type": "input_image", "image_url": PIXEL, "file_id": None},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"},
    ]
    prompt = parse_request(input=[{"role": "user", "content": parts}]).prompt

    assert prompt.turns[0].content == (
        TextPart("what is this"),
        ImagePart(PIXEL, "low"),
        ImagePart(PIXEL),
        OtherPart(
            "file",
            {
                "type": "file",
                "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"},
            },
        ),
    )
    assert prompt.images == 2
    assert prompt.options_used == {"image_input": "input", "other_input": "input"}


def test_the_answer_of_a_tool_may_hold_an_image() -> None:
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PIXEL}]
    prompt = parse_request(input=[USER, CALL, {**OUTPUT, "output": parts}]).prompt

    assert prompt.turns[2].content == (TextPart("see"), ImagePart(PIXEL))
    assert prompt.images == 1


def test_an_address_goes_out_only_where_the_deployment_lets_it() -> None:
    image = {"type": "input_image", "image_url": "https://e.com/a.png"}
    body = json.dumps({"model": "m", "input": [{"role": "user", "content": [image]}]}).encode()

    with pytest.raises(InvalidRequest) as raised:
        parse.parse(body, unseal=str)
    allowed = parse.parse(body, unseal=str, remote_images=True)

    assert raised.value.param == "input[0].content[0].image_url"
    assert allowed.prompt.images == 1


REFUSED: list[tuple[Any, str]] = [
    ({"role": "tool", "content": "x"}, "input[1].role"),
    ({"content": "x"}, "input[1].role"),
    ({"role": "user"}, "input[1].content"),
    ({"role": "user", "content": 1}, "input[1].content"),
    ({"role": "user", "content": ["x"]}, "input[1].content[0].type"),
    ({"role": "user", "content": [{"type": "input_audio"}]}, "input[1].content[0].type"),
    ({"role": "user", "content": [{"type": "input_text"}]}, "input[1].content[0].text"),
    ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "input[1].content[0].image_url"),
    ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "input[1].content[0].file_id"),
    (
        {"role": "user", "content": [{"type": "input_file", "file_url": "https://e.com"}]},
        "input[1].content[0].file_url",
    ),
    (
        {"role": "user", "content": [{"type": "input_file", "file_data": "/etc/passwd"}]},
        "input[1].content[0].file_data",
    ),
    ({**CALL, "arguments": {}}, "input[1].arguments"),
    ({**CALL, "call_id": None}, "input[1].call_id"),
    ({**OUTPUT, "output": None}, "input[1].output"),
    ({**THOUGHT, "encrypted_content": None, "content": "text"}, "input[1].content"),
    ({"type": "item_reference", "id": "msg_1"}, "input[1].type"),
    ({"type": "computer_call"}, "input[1].type"),
    ({"type": ["message"]}, "input[1].type"),
]


@pytest.mark.parametrize(("item", "param"), REFUSED, ids=[param for _, param in REFUSED])
def test_an_item_that_cannot_be_understood_is_refused_by_its_path(item: Any, param: str) -> None:
    assert refused(USER, item).param == param


@pytest.mark.parametrize("items", [[], [THOUGHT]])
def test_there_must_be_something_to_respond_to(items: list[Any]) -> None:
    assert refused(*items).param == "input"


@FEW
@given(answers())
def test_any_answer_can_be_sent_back_as_it_came(events: list[Event]) -> None:
    """The loop of every agent: append the output to the input, ask again."""
    output = [item.to_dict() for item in read_json(body_of(events, INFO)).output]
    unanswered = [item["call_id"] for item in output if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": each, "output": "ok"} for each in unanswered]

    prompt = parse_request(input=[USER, *output, *results]).prompt

    called = [call.id for turn in prompt.turns for call in turn.tool_calls]
    assert called == unanswered
