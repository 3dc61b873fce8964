"""A client reads a response as one JSON object."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from inference.dialects.responses.response import ResponseObject
from inference.events import Event, Finish, ReasoningDelta, TextDelta, TokenLogprob, TopLogprob, Usage
from tests.inference.dialects.responses.events import answers
from tests.inference.dialects.responses.sdk import INFO, body_of, parse_request, read_json

# The SDK makes its types when it first needs them, and checks every event against all of them.
FEW = settings(deadline=None, max_examples=40)
HELLO = [TextDelta(0, "He"), TextDelta(0, "llo"), Finish(0, "stop"), Usage(3, 2)]


def answer_to(events: list[Any], **fields: Any) -> dict[str, Any]:
    request = parse_request(**fields)
    info = msgspec.structs.replace(INFO, echo=request.echo, summarizes=request.summarizes)
    body = body_of(events, info)
    read_json(body)  # strict
    return json.loads(body)  # type: ignore[no-any-return]


def test_it_works() -> None:
    assert answer_to(HELLO) == {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "completed_at": 2,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "m",
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
            }
        ],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 5,
        },
    }


def test_it_repeats_the_fields_of_the_request() -> None:
    fields: dict[str, Any] = {
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 50,
        "tools": [
            {"type": "function", "name": "f", "parameters": {"default": None}, "strict": None},
            {"type": "web_search_preview"},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"default": None}}},
        "reasoning": {"effort": "low", "summary": "auto"},
        "truncation": "auto",
        "service_tier": "flex",
        "store": False,
        "background": False,
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "top_logprobs": 3,
    }

    answer = answer_to(HELLO, **fields)

    assert {name: answer[name] for name in fields} == fields


def test_it_does_not_repeat_what_is_not_for_a_client() -> None:
    assert "policy_ids" not in answer_to(HELLO, policy_ids=["p"])


def test_an_answer_cut_short_is_incomplete() -> None:
    answer = answer_to([TextDelta(0, "He"), Finish(0, "length")])

    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["status"] == "incomplete"
    assert "completed_at" not in answer


@pytest.mark.parametrize("form", ["content", "summary"])
def test_reasoning_comes_first_as_text_or_as_a_summary(form: str) -> None:
    events = [ReasoningDelta(0, "thi"), ReasoningDelta(0, "nk"), *HELLO]

    item = answer_to(events, reasoning={"summary": "auto" if form == "summary" else None})["output"][0]

    assert [part["text"] for part in item[form]] == ["think"]
    assert item.get("summary" if form == "content" else "content", []) == []


def test_logprobs_have_the_bytes_that_the_sdk_wants() -> None:
    likely = (TokenLogprob("é", -0.5, None, (TopLogprob("é", -0.5, (195, 169)), TopLogprob("e", -1.0))),)

    answer = answer_to([TextDelta(0, "é", likely), Finish(0, "stop")])

    (found,) = answer["output"][0]["content"][0]["logprobs"]
    assert found["bytes"] == [195, 169]
    assert [top["bytes"] for top in found["top_logprobs"]] == [[195, 169], [101]]


def test_usage_has_its_details() -> None:
    usage = answer_to([Finish(0, "stop"), Usage(9, 7, 4, 2, 5)])["usage"]

    assert usage["input_tokens_details"] == {"cached_tokens": 4, "cache_write_tokens": 2}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 5}


@FEW
@given(answers())
def test_any_answer_has_the_documented_shape(events: list[Event]) -> None:
    answer = msgspec.json.decode(body_of(events), type=ResponseObject)

    assert answer.status in ("completed", "incomplete")
    assert all(item["status"] in ("completed", "incomplete") for item in answer.output)
