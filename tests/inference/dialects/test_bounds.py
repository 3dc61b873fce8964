"""A client sends more messages, parts or tools than are accepted: refused by name, with the bound."""

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

SAID = {"role": "user", "content": "x"}
PART = {"type": "text", "text": "x"}
FUNCTION = {"name": "f", "parameters": {"type": "object"}}


@pytest.fixture(autouse=True)
def few(settings: Any) -> None:
    settings.GATEWAY_MAX_MESSAGES = 3
    settings.GATEWAY_MAX_CONTENT_PARTS = 4
    settings.GATEWAY_MAX_TOOLS = 2


def chat(**fields: Any) -> Any:
    return chat_prompt.parse(json.dumps({"model": "m", "messages": [SAID], **fields}).encode())


def respond(**fields: Any) -> Any:
    raw = json.dumps({"model": "m", "input": "x", **fields}).encode()
    return RESPONSES.parse(raw, RequestContext(request_id=uuid.uuid4(), organization_id=uuid.uuid4()))


def count(**fields: Any) -> Any:
    return messages.parse(json.dumps({"model": "m", "messages": [SAID], **fields}).encode())


def parts(number: int) -> dict[str, Any]:
    return {"role": "user", "content": [PART] * number}


CHAT_TOOL = {"type": "function", "function": FUNCTION}
RESPONSE_TOOL = {"type": "function", **FUNCTION}
RESPONSE_PARTS = [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * 3}] * 2
COUNTED_TOOL = {"name": "f", "input_schema": {}}


@pytest.mark.parametrize(
    ("parse", "fields", "param", "setting"),
    [
        (chat, {"messages": [SAID] * 4}, "messages", "GATEWAY_MAX_MESSAGES"),
        (chat, {"messages": [parts(3), parts(2)]}, "messages", "GATEWAY_MAX_CONTENT_PARTS"),
        (chat, {"tools": [CHAT_TOOL] * 3}, "tools", "GATEWAY_MAX_TOOLS"),
        (chat, {"functions": [FUNCTION] * 3}, "functions", "GATEWAY_MAX_TOOLS"),
        (respond, {"input": [SAID] * 4}, "input", "GATEWAY_MAX_MESSAGES"),
        (respond, {"input": RESPONSE_PARTS}, "input", "GATEWAY_MAX_CONTENT_PARTS"),
        (respond, {"tools": [RESPONSE_TOOL] * 3}, "tools", "GATEWAY_MAX_TOOLS"),
        (count, {"messages": [SAID] * 4}, "messages", "GATEWAY_MAX_MESSAGES"),
        (count, {"messages": [parts(5)]}, "messages", "GATEWAY_MAX_CONTENT_PARTS"),
        (count, {"system": [PART] * 5}, "system", "GATEWAY_MAX_CONTENT_PARTS"),
        (count, {"tools": [COUNTED_TOOL] * 3}, "tools", "GATEWAY_MAX_TOOLS"),
    ],
)
def test_more_messages_parts_or_tools_than_accepted_are_refused(
    parse: Any, fields: dict[str, Any], param: str, setting: str, settings: Any
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(**fields)

    assert refused.value.param == param
    assert f"at most {getattr(settings, setting)} are accepted ({setting})" in refused.value.message


def test_as_many_messages_parts_and_tools_as_accepted_pass() -> None:
    assert len(chat(messages=[SAID, parts(2), parts(2)], tools=[CHAT_TOOL] * 2).prompt.turns) == 3
    assert len(respond(input=[SAID] * 3, tools=[RESPONSE_TOOL] * 2).prompt.turns) == 3
    assert count(messages=[SAID, parts(4)], tools=[COUNTED_TOOL] * 2).turns == 2
