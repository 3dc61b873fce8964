"""Attacks by what is in a body: many small nodes, many messages, long texts."""

from __future__ import annotations

import json
from functools import lru_cache

from tests.e2e.siege.raw_http import exchange, json_request
from tests.e2e.siege.target import Target

CHAT = "/v1/chat/completions"
MODEL = "siege/fast"
ALLOWED_MESSAGES = 5_000


async def _post(target: Target, key: str, body: bytes, path: str = CHAT) -> str:
    return str((await exchange(target.port, json_request(path, key, body))).status or "closed")


def _chat(messages: bytes, more: bytes = b"") -> bytes:
    return b'{"model":"%b","max_tokens":8,"messages":[%b]%b}' % (MODEL.encode(), messages, more)


def _message(content: bytes) -> bytes:
    return b'{"role":"user","content":%b}' % content


@lru_cache
def _body(name: str) -> bytes:
    """Made once: an attacker pays for its weapons before, and not while it attacks."""
    if name == "objects":
        objects = b",".join([b"{}"] * 3_000_000)
        return _chat(_message(b'[{"type":"foo","x":[%b]}]' % objects))
    if name == "parts":
        return _chat(_message(b"[%b]" % b",".join([b'{"type":"text","text":""}'] * 350_000)))
    if name == "tool":
        schema = b'{"type":"object","x":[%b]}' % b",".join([b"{}"] * 2_900_000)
        tool = b'{"type":"function","function":{"name":"f","parameters":%b}}' % schema
        return _chat(_message(b'"Hello"'), b',"tools":[%b]' % tool)
    if name == "messages":
        return _chat(b",".join([_message(b'"a"')] * 330_000))
    if name == "text":
        return _chat(
            _message(json.dumps("To be, or not to be; {that} is [the] question. " * 190_000).encode())
        )
    if name == "allowed":
        return _chat(b",".join([_message(b'"a b c"')] * ALLOWED_MESSAGES))
    return b"{%b}" % b",".join(b'"%d":0' % number for number in range(900_000))


async def many_objects(target: Target) -> str:
    return await _post(target, target.poor_key, _body("objects"))


async def many_parts(target: Target) -> str:
    return await _post(target, target.poor_key, _body("parts"))


async def large_tool(target: Target) -> str:
    return await _post(target, target.poor_key, _body("tool"))


async def many_messages(target: Target) -> str:
    return await _post(target, target.poor_key, _body("messages"))


async def long_text(target: Target) -> str:
    return await _post(target, target.poor_key, _body("text"))


async def allowed_messages(target: Target) -> str:
    return await _post(target, target.key, _body("allowed"))


async def many_names(target: Target) -> str:
    return await _post(target, target.admin_key, _body("names"), "/v1/organization/policies")
