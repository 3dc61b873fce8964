"""The `openai` backend with the api `responses`: what goes out, field by field, and which rows make one."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError

from gateway_site.api.errors import InvalidRequest
from gateway_site.http_client.client import Client
from gateway_site.http_client.failures import OptionNotImplemented
from gateway_site.http_client.ssrf_guard import parse_base_url
from inference.backends import registry
from inference.backends.openai_chat.backend import OpenAIBackend
from inference.backends.openai_chat.request import SERVERS
from inference.backends.openai_responses.backend import OpenAIResponsesBackend
from inference.backends.openai_responses.request import responses_body
from inference.catalog import services
from inference.models import Backend
from inference.prompt import (
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
from organization.audit.trail import Actor
from tests.harness.commands import run
from tests.inference.backends.harness import hello


def body_of(server: str = "openai", **changes: Any) -> dict[str, Any]:
    return responses_body(hello(**changes), model="upstream-name", server=SERVERS[server])


def test_the_smallest_request() -> None:
    assert body_of() == {
        "model": "upstream-name",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "stream": True,
        "store": False,
        "max_output_tokens": 1024,
    }


CONVERSATION = (
    Turn(role="developer", content="Be brief."),
    Turn(role="user", content=(TextPart("See"), ImagePart("data:image/png;base64,AA", "low"))),
    Turn(
        role="assistant",
        content="I look.",
        reasoning="hm",
        tool_calls=(ToolCall("c1", "f", "{}"), ToolCall("c2", "g", "[]")),
    ),
    Turn(role="tool", tool_call_id="c1", content=(TextPart("sun"),)),
    Turn(role="tool", tool_call_id="c2", content="rain"),
)


def test_a_conversation_with_tools() -> None:
    said = {"type": "output_text", "text": "I look.", "annotations": []}

    assert body_of(turns=CONVERSATION)["input"] == [
        {"type": "message", "role": "developer", "content": "Be brief."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "See"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
            ],
        },
        {"type": "message", "role": "assistant", "status": "completed", "content": [said]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "[]"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {"type": "function_call_output", "call_id": "c2", "output": "rain"},
    ]


def test_plain_thoughts_go_back_where_they_came_from() -> None:
    items = body_of("llama.cpp", turns=CONVERSATION)["input"]

    thoughts = [{"type": "reasoning_text", "text": "hm"}]
    assert items[0]["role"] == "system"
    assert items[2] == {"type": "reasoning", "id": "rs_2", "summary": [], "content": thoughts}


FLAT_TOOLS = [
    {
        "type": "function",
        "name": "f",
        "description": "does",
        "parameters": {"type": "object"},
        "strict": True,
    },
    {
        "type": "function",
        "name": "g",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    },
    {
        "type": "web_search",
        "search_context_size": "low",
        "user_location": {"type": "approximate", "city": "Oslo"},
    },
]


def test_every_option() -> None:
    near = {"type": "approximate", "approximate": {"city": "Oslo", "street": "x"}}
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}
    body = body_of(
        output_bound=50,
        sampling=Sampling(temperature=0.0, top_p=0.5),
        reasoning=Reasoning(effort="low"),
        answer_format=JsonSchema("a", {"type": "object"}, strict=True),
        verbosity="low",
        parallel_tool_calls=False,
        tools=(Tool("f", "does", {"type": "object"}, True), Tool("g")),
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
        web_search_options={"search_context_size": "low", "user_location": near, "other": 1},
        service_tier="flex",
        user="u",
    )

    assert {name: body[name] for name in body.keys() - {"model", "input", "stream", "store"}} == {
        "max_output_tokens": 50,
        "temperature": 0.0,
        "top_p": 0.5,
        "reasoning": {"effort": "low"},
        "text": {
            "format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True},
            "verbosity": "low",
        },
        "parallel_tool_calls": False,
        "tools": FLAT_TOOLS,
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
        "service_tier": "flex",
        "user": "u",
    }


def test_other_choices_and_formats() -> None:
    body = body_of(tool_choice=NamedTool("f"), answer_format=JsonObject(), reasoning=Reasoning(enabled=False))

    assert body["tool_choice"] == {"type": "function", "name": "f"}
    assert body["text"] == {"format": {"type": "json_object"}}
    assert body["reasoning"] == {"effort": "none"}


def test_a_file_and_a_refusal() -> None:
    file = {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf", "other": 1}
    turns = (
        Turn(role="user", content=(OtherPart("file", {"type": "file", "file": file}),)),
        Turn(role="assistant", content=(OtherPart("refusal", {"type": "refusal", "refusal": "No."}),)),
    )

    sent, refused = body_of(turns=turns)["input"]

    assert sent["content"] == [
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}
    ]
    assert refused["content"] == [{"type": "refusal", "refusal": "No."}]


@pytest.mark.parametrize(
    "changes",
    [
        {"turns": (Turn(role="user", content=(OtherPart("input_audio", {"input_audio": {}}),)),)},
        {"turns": (Turn(role="function", name="f", content="x"),)},
        {"turns": (Turn(role="assistant", tool_calls=(ToolCall("c", None),)),)},
        {"tools": (Tool(None, extra={"type": "custom"}),)},
        {"tool_choice": {"type": "custom"}},
    ],
)
def test_what_cannot_be_said_is_refused(changes: Any) -> None:
    with pytest.raises(OptionNotImplemented):
        body_of(**changes)


# --- Rows ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(("api", "kind"), [("responses", OpenAIResponsesBackend), ("chat", OpenAIBackend)])
def test_a_row_says_which_api(api: str, kind: type) -> None:
    row, _ = services.save_backend(
        name="native",
        kind="openai",
        base_url="http://127.0.0.1:9/v1",
        credential=None,
        options={"api": api},
        actor=Actor.command("test"),
    )

    backend = registry.backend_for(row)

    assert type(backend) is kind
    assert ("seed" in backend.lacks) == (api == "responses")


@pytest.mark.django_db
def test_another_api_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        services.save_backend(
            name="native",
            kind="openai",
            base_url="http://127.0.0.1:9/v1",
            credential=None,
            options={"api": "soap"},
            actor=Actor.command("test"),
        )


@pytest.mark.django_db
def test_the_command_sets_the_api_and_keeps_it() -> None:
    place = ["--kind", "openai", "--base-url", "http://127.0.0.1:9/v1"]
    run("add_backend", "native", *place, "--api", "responses")
    run("add_backend", "native", *place, "--server", "openai")

    assert Backend.objects.get(name="native").options == {"api": "responses", "server": "openai"}
    with pytest.raises(CommandError, match="--api is for"):
        run("add_backend", "other", "--kind", "simulator", "--api", "responses")


def test_llama_cpp_would_ignore_a_schema_here() -> None:
    address = parse_base_url("http://127.0.0.1:9/v1")

    backend = OpenAIResponsesBackend(
        Client(), name="x", base_url=address, server="llama.cpp", lacks=frozenset({"tools"})
    )

    assert {"json_schema", "json_object", "tools", "n", "stop"} <= backend.lacks
    assert "json_schema" not in OpenAIResponsesBackend(Client(), name="x", base_url=address).lacks
