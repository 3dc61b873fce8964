"""A client hides an address where a backend would fetch it: refused by name, wherever it stands."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from gateway_site.api.errors import InvalidRequest
from inference.dialects.base import RequestContext
from inference.dialects.chat import parse as chat_prompt
from inference.dialects.messages import parse as messages
from inference.dialects.responses.dialect import RESPONSES

METADATA = "http://169.254.169.254/latest"
IMAGE = {"type": "image_url", "image_url": {"url": METADATA}}
SCHEMA = {"type": "object", "properties": {"a": {"items": [{"$ref": METADATA}]}}}
REFERENCE = "properties.a.items[0].$ref"


def chat(*, remote: bool = False, **fields: Any) -> Any:
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return chat_prompt.parse(json.dumps(request).encode(), remote_images=remote)


def respond(**fields: Any) -> Any:
    raw = json.dumps({"model": "m", "input": "Hi", **fields}).encode()
    return RESPONSES.parse(raw, RequestContext(request_id=uuid.uuid4(), organization_id=uuid.uuid4()))


def count(**fields: Any) -> Any:
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return messages.parse(json.dumps(request).encode())


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


def predicted(content: Any) -> dict[str, Any]:
    return {"prediction": {"type": "content", "content": content}}


HIDDEN = [
    (chat, predicted([IMAGE]), "prediction.content[0].image_url"),
    (chat, predicted([{"type": "text", "text": "x", "src": METADATA}]), "prediction.content[0].src"),
    (chat, predicted(IMAGE), "prediction.content[0].image_url"),
    (chat, {"prediction": {"type": "content", "url": METADATA}}, "prediction.url"),
    (chat, {"web_search_options": {"filters": {"sites": [METADATA]}}}, "web_search_options.filters.sites[0]"),
    (chat, {"web_search_options": {"base_url": "//127.0.0.1"}}, "web_search_options.base_url"),
    (chat, {"audio": {"voice": {"sample": "file:/etc/passwd"}}}, "audio.voice.sample"),
    (chat, {"tool_choice": {"type": "mcp", "server_url": METADATA}}, "tool_choice.server_url"),
    (chat, {"response_format": schema_format(SCHEMA)}, f"response_format.json_schema.schema.{REFERENCE}"),
    (
        chat,
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
        f"tools[0].function.parameters.{REFERENCE}",
    ),
    (chat, {"functions": [{"name": "f", "parameters": SCHEMA}]}, f"functions[0].parameters.{REFERENCE}"),
    (
        respond,
        {"tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]},
        f"tools[0].parameters.{REFERENCE}",
    ),
    (
        respond,
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
        f"text.format.schema.{REFERENCE}",
    ),
    (count, {"tools": [{"name": "f", "input_schema": SCHEMA}]}, f"tools[0].input_schema.{REFERENCE}"),
    (count, {"output_format": {"schema": SCHEMA}}, f"output_format.schema.{REFERENCE}"),
]


@pytest.mark.parametrize(("parse", "fields", "param"), HIDDEN, ids=[param for _, _, param in HIDDEN])
def test_an_address_outside_of_messages_is_refused(parse: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(**fields)

    assert refused.value.param == param


WITHOUT_SLASHES = [
    "http:169.254.169.254/",
    "HTTPS:127.0.0.1",
    " \x01http:127.0.0.1/",
    "ht\ntp:127.0.0.1/",
    "http:\t127.0.0.1",
    "http\n:\n//127.0.0.1/",
    "file:etc/passwd",
    "jar:http://127.0.0.1/a.jar",
    "http:\\\\127.0.0.1",
]


@pytest.mark.parametrize("address", WITHOUT_SLASHES)
@pytest.mark.parametrize("remote", [False, True])
def test_an_address_that_only_some_libraries_understand(address: str, remote: bool) -> None:
    part = {"type": "file", "file": {"file_data": address}}

    with pytest.raises(InvalidRequest) as refused:
        chat(messages=[{"role": "user", "content": [part]}], remote=remote)

    assert refused.value.param == "messages[0].content[0].file.file_data"


@pytest.mark.parametrize("reference", ["https://example.com/a.json", "a.json", "/etc/passwd", "//host/a", ""])
@pytest.mark.parametrize("name", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_a_schema_refers_to_nothing_but_itself(name: str, reference: str) -> None:
    with pytest.raises(InvalidRequest):
        chat(response_format=schema_format({name: reference}))
    # Whether backends may fetch images does not matter.
    with pytest.raises(InvalidRequest):
        chat(response_format=schema_format({name: reference}), remote=True)


ORDINARY_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/tree",
    "$defs": {
        "node": {"type": "object", "properties": {"$ref": {"type": "string"}, "url": {"format": "uri"}}}
    },
    "properties": {
        "children": {"items": {"$ref": "#/$defs/node"}},
        "link": {"type": "string", "default": "https://example.com/", "description": "http: or https:"},
        "self": {"$ref": "#"},
    },
}
ORDINARY = [
    predicted("https://example.com/ is where it was"),
    predicted([{"type": "text", "text": "http://127.0.0.1/"}]),
    {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Ulm: Mitte"}}}},
    {"web_search_options": {"filters": {"allowed_domains": ["example.com", "docs.example.com/a"]}}},
    {"response_format": schema_format(ORDINARY_SCHEMA)},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": ORDINARY_SCHEMA}}]},
    {"tools": [{"type": "function", "function": {"name": "f", "description": "https://example.com/"}}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "See http:127.0.0.1"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "note": "http: a protocol"}]}]},
    {"stop": ["https://example.com/"]},
]


@pytest.mark.parametrize("fields", ORDINARY, ids=lambda fields: json.dumps(fields)[:60])
def test_what_only_speaks_of_addresses_is_accepted(fields: dict[str, Any]) -> None:
    assert chat(**fields).prompt.model == "m"


def test_addresses_pass_where_backends_may_go_out() -> None:
    assert chat(remote=True, **predicted([IMAGE])).prompt.prediction is not None
    assert chat(remote=True, web_search_options={"site": "https://example.com/"}).prompt.web_search_options


def test_a_name_of_megabytes_is_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat(audio={"x" * 1_000_000: {"url": METADATA}})

    assert len(refused.value.param or "") <= 300
