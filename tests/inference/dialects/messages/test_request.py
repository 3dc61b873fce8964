"""A client describes an input to be counted, as the Messages API has it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gateway_site.api.errors import InvalidRequest
from inference.dialects.messages.parse import ParsedCountRequest, parse

PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
PDF = base64.b64encode(b"%PDF /Type /Pages /Type /Page x /Type/Page y").decode()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def parse_request(*blocks: Any, remote: bool = False, **fields: Any) -> ParsedCountRequest:
    messages = [{"role": "user", "content": list(blocks) or "hi"}]
    body = {"model": "m", "messages": messages, **fields}
    return parse(json.dumps(body).encode(), remote_images=remote)


def refused(*blocks: Any, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as raised:
        parse_request(*blocks, **fields)
    return raised.value.param


def test_it_works() -> None:
    request = parse_request(system="Be brief.", tools=[{"name": "f", "input_schema": {}}])

    assert (request.model, request.turns, request.images, request.pages) == ("m", 2, 0, 0)
    assert request.texts == ("Be brief.", "hi", "f", "{}")
    assert request.upstream == {
        "messages": [{"role": "user", "content": "hi"}],
        "system": "Be brief.",
        "tools": [{"name": "f", "input_schema": {}}],
    }


BLOCKS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("text", {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, ("a",)),
    ("thinking", {"type": "thinking", "thinking": "hm", "signature": "s"}, ("hm",)),
    ("redacted thinking", {"type": "redacted_thinking", "data": "x"}, ()),
    ("call", {"type": "tool_use", "id": "i", "name": "f", "input": {"a": 1}}, ("f", '{"a":1}')),
    ("result", {"type": "tool_result", "tool_use_id": "i", "content": "42"}, ("42",)),
    ("empty result", {"type": "tool_result", "tool_use_id": "i"}, ()),
    (
        "result in blocks",
        {"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "4"}]},
        ("4",),
    ),
    (
        "server call",
        {"type": "server_tool_use", "id": "i", "name": "web_search", "input": {}},
        ("web_search", "{}"),
    ),
    (
        "search result",
        {
            "type": "web_search_tool_result",
            "tool_use_id": "i",
            "content": [
                {"type": "web_search_result", "url": "https://e.com/", "title": "E", "encrypted_content": "x"}
            ],
        },
        ("https://e.com/", "E"),
    ),
    (
        "fetched page",
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "i",
            "content": {
                "type": "web_fetch_result",
                "url": "https://e.com/",
                "content": {"type": "document", "source": {"type": "text", "data": "page"}, "title": "T"},
            },
        },
        ("https://e.com/", "T", "page"),
    ),
    (
        "found by the client",
        {"type": "search_result", "source": "wiki", "title": "T", "content": [{"type": "text", "text": "c"}]},
        ("wiki", "T", "c"),
    ),
    ("document", {"type": "document", "title": "T", "source": {"type": "text", "data": "d"}}, ("T", "d")),
    (
        "document in blocks",
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "c"}]}},
        ("c",),
    ),
]


@pytest.mark.parametrize(("block", "texts"), [row[1:] for row in BLOCKS], ids=[row[0] for row in BLOCKS])
def test_the_words_of_every_kind_of_block_count(block: dict[str, Any], texts: tuple[str, ...]) -> None:
    request = parse_request(block)

    assert sorted(request.texts) == sorted(texts)
    assert request.upstream["messages"][0]["content"] == [block]


def test_images_count_wherever_they_are() -> None:
    image = {"type": "image", "source": PIXEL}
    request = parse_request(image, {"type": "tool_result", "tool_use_id": "i", "content": [image]})

    assert (request.images, request.texts) == (2, ())


def test_pages_of_a_document_count() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}

    assert parse_request({"type": "document", "source": source}).pages == 2


def test_reasoning_of_earlier_turns_does_not_count() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    tool_use = {"type": "tool_use", "id": "i", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "i", "content": "42"}
    going_on = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": [thought, tool_use]},
        {"role": "user", "content": [result]},
    ]

    assert "hm" in parse_request(messages=going_on).texts
    assert "hm" not in parse_request(messages=[*going_on, {"role": "user", "content": "second"}]).texts


@pytest.mark.parametrize(
    ("sent", "upstream_type"),
    [
        ("web_search_2025_03_05", "web_search_20250305"),
        ("web_fetch_2025_03_05", "web_fetch_20250910"),
        ("web_search_20250305", "web_search_20250305"),
        ("web_search_20260318", "web_search_20260318"),
        ("web_fetch_20250910", "web_fetch_20250910"),
    ],
)
def test_server_tools_go_by_the_interfaces_names_and_by_the_sdks(sent: str, upstream_type: str) -> None:
    request = parse_request(tools=[{"type": sent, "name": "web_search", "max_uses": 3}])

    assert request.upstream["tools"] == [{"type": upstream_type, "name": "web_search", "max_uses": 3}]


def test_a_custom_tool_may_say_that_it_is_one() -> None:
    tool = {"type": "custom", "name": "f", "description": "d", "input_schema": SCHEMA}

    assert parse_request(tools=[tool]).texts[1:3] == ("f", "d")


def test_system_messages_in_the_conversation_move_to_the_system_prompt() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]

    upstream = parse_request(system="Be brief.", messages=messages).upstream

    assert upstream["messages"] == [{"role": "user", "content": "hi"}]
    assert upstream["system"] == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]


def test_fields_that_change_no_count_are_not_sent_upstream() -> None:
    request = parse_request(
        thinking={"type": "enabled", "budget_tokens": 1024},
        tool_choice={"type": "auto"},
        output_config={"effort": "low"},
        cache_control={"type": "ephemeral"},
        speed="fast",
        compaction={},
        context_management={"edits": []},
        mcp_servers=[{"type": "url", "url": "https://e.com", "authorization_token": "secret"}],
    )

    assert set(request.upstream) == {"messages", "thinking", "tool_choice", "output_config"}
    assert not any("secret" in text for text in request.texts)


def test_null_fields_are_not_sent_upstream() -> None:
    names = ("system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed")

    nothing: dict[str, Any] = dict.fromkeys(names)

    assert set(parse_request(**nothing).upstream) == {"messages"}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "model"),
    ({"model": "m" * 201}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"max_tokens": 5}, "max_tokens"),
    ({"system": 5}, "system"),
    ({"system": [{"text": "x"}]}, "system[0].type"),
    ({"speed": "slow"}, "speed"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    ({"tools": [{"type": 5}]}, "tools[0].type"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "f", "input_schema": {}, "description": 5}]}, "tools[0].description"),
    ({"tools": [{"type": "web_search_20250305"}]}, "tools[0].name"),
]
BAD_BLOCKS: list[tuple[Any, str]] = [
    ({"text": "x"}, ".type"),
    ({"type": "text"}, ".text"),
    ({"type": "image"}, ".source"),
    ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "%"}}, ".source.data"),
    ({"type": "image", "source": {"type": "file", "file_id": "f"}}, ".source.type"),
    ({"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}}, ".source.url"),
    ({"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}, ".source.url"),
    ({"type": "document", "source": {"type": "url", "url": "https://e.com/a.pdf"}}, ".source.url"),
    ({"type": "document", "source": {"type": "base64", "data": "%"}}, ".source.data"),
    ({"type": "document", "source": {"type": "file", "file_id": "f"}}, ".source.type"),
    ({"type": "tool_use", "id": "i", "input": {}}, ".name"),
    ({"type": "tool_result", "content": 5}, ".content"),
    ({"type": "tool_result", "content": [{"type": "image"}]}, ".content[0].source"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[row[1] for row in REFUSED])
def test_a_field_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields) == param


@pytest.mark.parametrize(("block", "param"), BAD_BLOCKS)
def test_a_block_at_fault_is_named(block: dict[str, Any], param: str) -> None:
    assert refused(block) == f"messages[0].content[0]{param}"


def test_an_address_inside_of_what_a_tool_found_is_checked_as_well() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://e.com/"}}
    block = {"type": "browser_state", "shots": [image]}

    assert refused(block) == "messages[0].content[0].shots[0].source.url"
    assert parse_request(block, remote=True).images == 1
