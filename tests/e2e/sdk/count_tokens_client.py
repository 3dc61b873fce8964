"""
Counts tokens with whichever anthropic SDK it finds, and prints what it saw as JSON. The test judges.

A program of its own, because a process can hold one release of a package.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import anthropic

PIXEL: Any = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
QUESTION: Any = {"model": "echo", "messages": [{"role": "user", "content": "hello there"}]}
RICH: Any = {
    "model": "echo",
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tool_choice": {"type": "auto"},
    "tools": [
        {"name": "f", "description": "words", "input_schema": {"type": "object", "properties": {}}},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hello there"},
                {"type": "image", "source": PIXEL},
                {
                    "type": "document",
                    "title": "T",
                    "source": {"type": "text", "media_type": "text/plain", "data": "page"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42"}]},
    ],
}


def failure(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        call()
    except anthropic.APIStatusError as error:
        body: Any = error.body
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "request_id": error.request_id,
            "type": body["error"]["type"],
            "wrapped": body["type"] == "error",
            "same_id": error.request_id == body["error"]["request_id"],
        }
    return {"class": None}


def main() -> None:
    address, key = os.environ["GATEWAY_ADDRESS"], os.environ["GATEWAY_KEY"]
    client = anthropic.Anthropic(base_url=address, api_key=key, max_retries=0)
    strict = anthropic.Anthropic(
        base_url=address, api_key=key, max_retries=0, _strict_response_validation=True
    )
    stranger = anthropic.Anthropic(base_url=address, api_key="gwk_stranger", max_retries=0)
    bearer = anthropic.Anthropic(base_url=address, auth_token=key, max_retries=0)
    plain = client.messages.count_tokens(**QUESTION)
    beta = client.beta.messages.count_tokens(**QUESTION, betas=["context-management-2025-06-27"])
    json.dump(
        {
            "version": anthropic.__version__,
            "plain": plain.input_tokens,
            "has_request_id": bool(plain._request_id),
            "beta": beta.input_tokens,
            "strict": strict.messages.count_tokens(**QUESTION).input_tokens,
            "bearer": bearer.messages.count_tokens(**QUESTION).input_tokens,
            "rich": client.messages.count_tokens(**RICH).input_tokens,
            "unknown": failure(lambda: client.messages.count_tokens(**{**QUESTION, "model": "nothing"})),
            "stranger": failure(lambda: stranger.messages.count_tokens(**QUESTION)),
            "empty": failure(lambda: client.messages.count_tokens(model="echo", messages=[])),
            "beta_unknown": failure(
                lambda: client.beta.messages.count_tokens(**{**QUESTION, "model": "nothing"})
            ),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
