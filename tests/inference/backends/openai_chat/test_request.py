"""The `openai` backend: what goes out, field by field, to each kind of server."""

from __future__ import annotations

from typing import Any

import pytest

from gateway_site.http_client.client import Client
from gateway_site.http_client.failures import OptionNotImplemented
from gateway_site.http_client.ssrf_guard import parse_base_url
from inference.backends.openai_chat.backend import OpenAIBackend
from inference.backends.openai_chat.request import SERVERS, chat_body
from inference.prompt import (
    CacheHints,
    ImagePart,
    JsonObject,
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
from tests.inference.backends.harness import collect, hello

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def body_of(server: Any = "other", **changes: Any) -> Any:
    return chat_body(hello(**changes), model="upstream-name", server=SERVERS[server])


def messages_of(*turns: Any, server: Any = "other") -> Any:
    return body_of(server, turns=turns)["messages"]


def test_the_smallest_request() -> None:
    assert body_of() == {
        "model": "upstream-name",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1024,
    }


def test_it_arrives_as_built() -> None:
    exchange = collect("openai", "ok", hello(completions=2)).exchange

    assert exchange.path == "/v1/chat/completions"
    assert exchange.body["n"] == 2
    assert exchange.body["model"] == "ok"
    assert exchange.body["stream_options"] == {"include_usage": True}


def test_every_field_of_sampling() -> None:
    sampling = Sampling(
        temperature=0.0,
        top_p=0.5,
        frequency_penalty=-1.0,
        presence_penalty=1.0,
        logit_bias={"5": -100.0},
        seed=0,
        stop=("a", "b"),
        logprobs=True,
        top_logprobs=3,
    )

    body = body_of(sampling=sampling, completions=3)

    assert {name: body[name] for name in body.keys() - body_of().keys()} == {
        "temperature": 0.0,
        "top_p": 0.5,
        "frequency_penalty": -1.0,
        "presence_penalty": 1.0,
        "logit_bias": {"5": -100.0},
        "seed": 0,
        "stop": ("a", "b"),
        "logprobs": True,
        "top_logprobs": 3,
        "n": 3,
    }


def test_tools_and_the_choice_among_them() -> None:
    body = body_of(
        tools=(Tool("weather", "Tells it", SCHEMA, True), Tool("time")),
        tool_choice=NamedTool("weather"),
        parallel_tool_calls=False,
    )

    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "weather", "description": "Tells it", "parameters": SCHEMA, "strict": True},
        },
        {"type": "function", "function": {"name": "time"}},
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert body["parallel_tool_calls"] is False


def test_legacy_functions() -> None:
    body = body_of(functions=(Tool("f", None, SCHEMA),), function_call=NamedTool("f"))

    assert body["functions"] == [{"name": "f", "parameters": SCHEMA}]
    assert body["function_call"] == {"name": "f"}


def test_the_format_of_the_answer() -> None:
    assert body_of(answer_format=JsonObject())["response_format"] == {"type": "json_object"}
    assert body_of(answer_format=JsonSchema("city", SCHEMA, strict=True))["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "city", "schema": SCHEMA, "strict": True},
    }


def test_a_conversation_with_tools_goes_back_as_it_was() -> None:
    assert messages_of(
        Turn(role="assistant", tool_calls=(ToolCall("call_1", "f", "{not json"),)),
        Turn(role="tool", tool_call_id="call_1", content="42"),
        Turn(role="assistant", function_call=ToolCall(None, "g", "{}")),
        Turn(role="function", name="g", content="43"),
    ) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{not json"}}
            ],
        },
        {"role": "tool", "content": "42", "tool_call_id": "call_1"},
        {"role": "assistant", "content": None, "function_call": {"name": "g", "arguments": "{}"}},
        {"role": "function", "content": "43", "name": "g"},
    ]


def test_parts_without_what_the_client_put_beside_them() -> None:
    parts = (
        TextPart("look", extra={"api_base": "http://evil.example", "cache_control": {"type": "ephemeral"}}),
        ImagePart("data:image/png;base64,AA==", "low", extra={"fetch": "http://evil.example"}),
        OtherPart("input_audio", {"type": "input_audio", "input_audio": {"data": "AA=="}, "url": "http://x"}),
    )

    assert messages_of(Turn(role="user", content=parts))[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AA=="}},
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"turns": (Turn(role="user", content=(OtherPart("gadget", {"url": "http://10.0.0.1"}),)),)},
        {"turns": (Turn(role="assistant", tool_calls=(ToolCall("a", None, extra={"type": "custom"}),)),)},
        {"tools": (Tool(None, extra={"type": "custom"}),)},
    ],
)
def test_what_it_cannot_say_is_an_option_that_it_lacks(changes: Any) -> None:
    with pytest.raises(OptionNotImplemented) as refusal:
        body_of(**changes)

    assert refusal.value.status == 501
    assert refusal.value.is_free


# --- Servers differ ---------------------------------------------------------------------------------


def test_openai_bounds_completions_and_knows_developers() -> None:
    body = body_of("openai", turns=(Turn(role="developer", content="Be brief"),))

    assert body["max_completion_tokens"] == 1024
    assert "max_tokens" not in body
    assert body["messages"][0]["role"] == "developer"
    assert messages_of(Turn(role="developer", content="Be brief"))[0]["role"] == "system"


def test_only_vllm_is_asked_for_running_usage() -> None:
    asked = {name for name in SERVERS if "continuous_usage_stats" in body_of(name)["stream_options"]}

    assert asked == {"vllm"}


def test_earlier_reasoning_goes_back_only_where_it_is_understood() -> None:
    turn = Turn(role="assistant", content="4", reasoning="2+2")

    assert messages_of(turn, server="vllm")[0]["reasoning_content"] == "2+2"
    assert messages_of(turn, server="openai") == [{"role": "assistant", "content": "4"}]


@pytest.mark.parametrize(
    ("server", "reasoning", "fields"),
    [
        ("openai", Reasoning(effort="high"), {"reasoning_effort": "high"}),
        ("openai", Reasoning(enabled=False), {"reasoning_effort": "none"}),
        ("openai", Reasoning(enabled=True), {}),
        ("vllm", Reasoning(enabled=False), {"chat_template_kwargs": {"enable_thinking": False}}),
        ("vllm", Reasoning(effort="low"), {"reasoning_effort": "low"}),
        ("llama.cpp", Reasoning(enabled=True), {"chat_template_kwargs": {"enable_thinking": True}}),
    ],
)
def test_how_each_is_told_to_think(server: Any, reasoning: Any, fields: Any) -> None:
    body = body_of(server, reasoning=reasoning)

    assert {name: body[name] for name in body.keys() - body_of(server).keys()} == fields


def test_hints_go_only_where_they_are_known() -> None:
    hints = {
        "cache": CacheHints(key="hmac-key", retention="24h", salt="hmac-salt"),
        "user": "u",
        "safety_identifier": "s",
        "metadata": {"team": "x"},
    }
    sent = {name: body_of(name, **hints).keys() - body_of(name).keys() for name in SERVERS}

    assert sent == {
        "openai": {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user"},
        "vllm": {"cache_salt"},
        "sglang": set(),
        "llama.cpp": set(),
        "ollama": set(),
        "other": {"prompt_cache_key", "user"},
    }


def test_a_deployment_may_lack_more_than_its_kind() -> None:
    backend = OpenAIBackend(
        Client(),
        name="x",
        base_url=parse_base_url("http://h"),
        server="llama.cpp",
        lacks=frozenset({"image_input"}),
    )

    assert {"n", "image_input", "prompt_logprobs"} <= backend.lacks
    assert "tools" not in backend.lacks
