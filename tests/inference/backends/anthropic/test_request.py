"""The `anthropic` backend: a Prompt as a Messages request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway_site.api.errors import ProviderRejected
from gateway_site.http_client.client import Client
from gateway_site.http_client.failures import OptionNotImplemented
from inference.backends.anthropic.request import messages_body
from inference.prompt import (
    ImagePart,
    JsonSchema,
    NamedTool,
    OtherPart,
    Reasoning,
    Sampling,
    TextPart,
    Tool,
    ToolCall,
    Turn,
)
from tests.inference.backends.harness import anthropic_backend, collect, hello
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def body_of(thinking: Any = "budget", **changes: Any) -> Any:
    return messages_body(hello(**changes), model="claude-x", thinking=thinking)


def said_with(*turns: Any) -> Any:
    return body_of(turns=turns)["messages"]


def test_the_smallest_request() -> None:
    assert body_of() == {
        "model": "claude-x",
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": True,
    }


def test_it_arrives_with_its_version_and_key() -> None:
    exchange = collect("anthropic", "ok").exchange

    assert exchange.path == "/v1/messages"
    assert exchange.headers["anthropic-version"] == "2023-06-01"
    assert exchange.headers["x-api-key"].startswith("sk-")
    assert "authorization" not in exchange.headers


def test_system_turns_leave_the_conversation_in_order() -> None:
    body = body_of(
        turns=(
            Turn(role="system", content="Be brief."),
            Turn(role="user", content="Hi"),
            Turn(role="developer", content=(TextPart("Be"), TextPart("kind."))),
        )
    )

    assert body["system"] == "Be brief.\n\nBe\nkind."
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_the_tools_loop() -> None:
    assert said_with(
        Turn(role="user", content="Weather?"),
        Turn(
            role="assistant",
            content="",
            reasoning="unsigned",
            tool_calls=(ToolCall("call:1", "weather", '{"city": "Rome"}'), ToolCall("b", "time", "")),
        ),
        Turn(role="tool", tool_call_id="call:1", content="Sunny"),
        Turn(role="tool", tool_call_id="b", content=(TextPart("Noon"),)),
        Turn(role="user", content="Thanks"),
    ) == [
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}},
                {"type": "tool_use", "id": "b", "name": "time", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1",
                    "content": [{"type": "text", "text": "Sunny"}],
                },
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "Noon"}]},
                {"type": "text", "text": "Thanks"},
            ],
        },
    ]


@pytest.mark.parametrize("arguments", ["{broken", "[1]", '"text"'])
def test_arguments_that_are_no_object_do_not_end_the_conversation(arguments: Any) -> None:
    (message,) = said_with(Turn(role="assistant", tool_calls=(ToolCall("a", "f", arguments),)))

    assert message["content"][0]["input"] == {"arguments": arguments}


def test_images() -> None:
    (message,) = said_with(
        Turn(
            role="user",
            content=(ImagePart("data:image/PNG;base64,AAAA"), ImagePart("https://a.example/i.png")),
        )
    )

    assert [block["source"] for block in message["content"]] == [
        {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        {"type": "url", "url": "https://a.example/i.png"},
    ]


@pytest.mark.parametrize("url", ["data:text/html,hi", "file:///etc/passwd", "data:image/png,raw", ""])
def test_an_image_that_is_none_is_rejected_before_anything_is_sent(url: Any) -> None:
    with pytest.raises(ProviderRejected) as rejection:
        said_with(Turn(role="user", content=(ImagePart(url),)))

    assert rejection.value.is_free


def test_the_operators_cache_is_not_the_clients_to_steer() -> None:
    part = TextPart("x", extra={"cache_control": {"type": "ephemeral"}})

    assert "cache_control" not in str(said_with(Turn(role="user", content=(part,))))


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        ("auto", None, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        (NamedTool("f"), None, {"type": "tool", "name": "f"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
    ],
)
def test_tools_and_the_choice_among_them(choice: Any, parallel: Any, expected: Any) -> None:
    tools = (Tool("f", "Does it", SCHEMA, True), Tool("g"))

    body = body_of(tools=tools, tool_choice=choice, parallel_tool_calls=parallel)

    assert body.get("tool_choice") == expected
    assert body["tools"] == [
        {"name": "f", "description": "Does it", "input_schema": SCHEMA, "strict": True},
        {"name": "g", "input_schema": {"type": "object", "properties": {}}},
    ]


@pytest.mark.parametrize(
    ("reasoning", "bound", "thinking"),
    [
        (Reasoning(), 8000, None),
        (Reasoning(effort="none"), 8000, {"type": "disabled"}),
        (Reasoning(enabled=False), 8000, {"type": "disabled"}),
        (Reasoning(effort="medium"), 8000, {"type": "enabled", "budget_tokens": 4000}),
        (Reasoning(enabled=True), 8000, {"type": "enabled", "budget_tokens": 4000}),
        (Reasoning(effort="minimal"), 8000, {"type": "enabled", "budget_tokens": 1024}),
        (Reasoning(max_tokens=2000), 8000, {"type": "enabled", "budget_tokens": 2000}),
        (Reasoning(max_tokens=9000), 8000, {"type": "enabled", "budget_tokens": 7999}),
        (Reasoning(effort="max"), 1024, None),
    ],
)
def test_thinking_stays_inside_the_bound(reasoning: Any, bound: Any, thinking: Any) -> None:
    assert body_of(reasoning=reasoning, output_bound=bound).get("thinking") == thinking


def test_thinking_by_effort_and_a_schema_share_their_field() -> None:
    body = body_of("adaptive", reasoning=Reasoning(effort="ultracode"), answer_format=JsonSchema("c", SCHEMA))

    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "max", "format": {"type": "json_schema", "schema": SCHEMA}}


def test_sampling() -> None:
    body = body_of(sampling=Sampling(temperature=0.0, top_p=0.9, stop=("END",)), safety_identifier="s")

    assert (body["temperature"], body["top_p"], body["stop_sequences"]) == (0.0, 0.9, ("END",))
    assert body["metadata"] == {"user_id": "s"}


@pytest.mark.parametrize(
    "changes",
    [
        {"turns": (Turn(role="user", content=(OtherPart("input_audio", {}),)),)},
        {"turns": (Turn(role="function", name="f", content="1"),)},
        {"turns": (Turn(role="assistant", function_call=ToolCall(None, "f", "{}")),)},
        {"tools": (Tool(None, extra={"type": "web_search"}),)},
        {"tools": (Tool("f"),), "tool_choice": {"type": "allowed_tools"}},
    ],
)
def test_what_it_cannot_say_is_an_option_that_it_lacks(changes: Any) -> None:
    with pytest.raises(OptionNotImplemented):
        body_of(**changes)


def test_schemas_are_lacked_only_where_the_models_have_none() -> None:
    async def run() -> Any:
        async with FaultyUpstream() as upstream, Client() as client:
            return [anthropic_backend(client, upstream, has_answer_schemas=has) for has in (True, False)]

    able, unable = asyncio.run(run())

    assert "json_schema" not in able.lacks
    assert unable.lacks == able.lacks | {"json_schema"}
    assert {"n", "seed", "logprobs"} <= able.lacks
