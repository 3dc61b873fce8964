"""What the fault-injecting upstream says, in the two dialects that it speaks: pure, bytes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

WORDS = ("Hello", " wörld", ",", " this", " is", " tökèn", " 😀", " and", " so", " on")

Usage = dict[str, Any] | None
UsageOf = Callable[[int, int], Usage]


def word(position: int) -> str:
    return WORDS[position % len(WORDS)]


def honest(prompt: int, completion: int) -> Usage:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def record(value: Any, event: str = "") -> bytes:
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (f"event: {event}\n" if event else "").encode() + f"data: {data}\n\n".encode()


class ChatSpeech:
    """The records of a chat completion."""

    def __init__(self, body: dict[str, Any], usage_of: UsageOf, *, is_cumulative: bool) -> None:
        self.body = body
        self.usage_of = usage_of
        self.is_cumulative = is_cumulative
        self.choices = body.get("n") or 1
        self.prompt_tokens = 11
        self.spoken = 0

    def opening(self) -> Iterator[bytes]:
        for index in range(self.choices):
            yield self.chunk(index, {"role": "assistant", "content": ""})

    def token(self, text: str, kind: str = "content", index: int = 0) -> bytes:
        self.spoken += 1
        return self.chunk(index, {kind: text})

    def tool(self, position: int, fragment: dict[str, Any]) -> bytes:
        self.spoken += 1
        return self.chunk(0, {"tool_calls": [{"index": position, **fragment}]})

    def finish(self, reason: str) -> Iterator[bytes]:
        for index in range(self.choices):
            yield self.chunk(index, {}, reason)

    def usage(self, completion: int | None = None) -> bytes:
        usage = self.usage_of(self.prompt_tokens, self.spoken if completion is None else completion)
        return record({**self._frame(), "choices": [], "usage": usage})

    def done(self) -> bytes:
        return record("[DONE]")

    def error(self, message: str) -> bytes:
        return record({"error": {"message": message, "type": "server_error", "code": None, "param": None}})

    def chunk(self, index: int, delta: dict[str, Any], reason: str | None = None) -> bytes:
        frame = self._frame()
        if self.is_cumulative:
            frame["usage"] = self.usage_of(self.prompt_tokens, self.spoken)
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return record({**frame, "choices": [choice]})

    def whole(self, text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        choices = [
            {"index": index, "message": message, "finish_reason": "stop", "logprobs": None}
            for index in range(self.choices)
        ]
        usage = self.usage_of(self.prompt_tokens, self.spoken)
        return {**self._frame(), "object": "chat.completion", "choices": choices, "usage": usage}

    def _frame(self) -> dict[str, Any]:
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": self.body.get("model"),
            "system_fingerprint": "fp_faulty",
        }


class MessagesSpeech:
    """The records of a message, with the same methods."""

    choices = 1

    def __init__(self, body: dict[str, Any], usage_of: UsageOf, *, is_cumulative: bool) -> None:
        self.body = body
        self.usage_of = usage_of
        self.prompt_tokens = 11
        self.spoken = 0
        self.block = -1
        self.block_kind = ""

    def opening(self) -> Iterator[bytes]:
        usage = self._words(self.usage_of(self.prompt_tokens, 1))
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": self.body.get("model")}
        yield self._event("message_start", message={**message, "content": [], "usage": usage})
        yield self._event("ping")

    def token(self, text: str, kind: str = "content", index: int = 0) -> bytes:
        self.spoken += 1
        if kind.startswith("reasoning"):
            return self._in_block("thinking", {"type": "thinking_delta", "thinking": text})
        return self._in_block("text", {"type": "text_delta", "text": text})

    def tool(self, position: int, fragment: dict[str, Any]) -> bytes:
        self.spoken += 1
        function = fragment["function"]
        opened = b""
        if "id" in fragment:
            block = {"type": "tool_use", "id": fragment["id"], "name": function["name"], "input": {}}
            opened = self._open("tool_use", block)
        delta = {"type": "input_json_delta", "partial_json": function.get("arguments", "")}
        return opened + self._event("content_block_delta", index=self.block, delta=delta)

    def finish(self, reason: str) -> Iterator[bytes]:
        stop_reason = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[reason]
        if self.block >= 0:
            yield self._event("content_block_stop", index=self.block)
        yield self._event("message_delta", delta={"stop_reason": stop_reason, "stop_sequence": None})

    def usage(self, completion: int | None = None) -> bytes:
        usage = self.usage_of(self.prompt_tokens, self.spoken if completion is None else completion)
        return self._event("message_delta", delta={}, usage=self._words(usage, is_final=True))

    def done(self) -> bytes:
        return self._event("message_stop")

    def error(self, message: str) -> bytes:
        return self._event("error", error={"type": "overloaded_error", "message": message})

    def whole(self, text: str) -> dict[str, Any]:
        usage = self._words(self.usage_of(self.prompt_tokens, self.spoken))
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": self.body.get("model"),
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "usage": usage,
        }

    def _in_block(self, kind: str, delta: dict[str, Any]) -> bytes:
        opened = b""
        if self.block_kind != kind:
            opened = self._open(kind, {"type": kind, kind: ""})
        return opened + self._event("content_block_delta", index=self.block, delta=delta)

    def _open(self, kind: str, block: dict[str, Any]) -> bytes:
        closed = self._event("content_block_stop", index=self.block) if self.block >= 0 else b""
        self.block += 1
        self.block_kind = kind
        return closed + self._event("content_block_start", index=self.block, content_block=block)

    def _words(self, usage: Usage, *, is_final: bool = False) -> Usage:
        """The same figures under the names that Messages gives them."""
        if usage is None:
            return None
        words = {"output_tokens": usage["completion_tokens"]}
        if not is_final:
            details = usage.get("prompt_tokens_details", {})
            words |= {
                "input_tokens": usage["prompt_tokens"],
                "cache_read_input_tokens": details.get("cached_tokens", 0),
                "cache_creation_input_tokens": details.get("cache_write_tokens", 0),
            }
        return words

    def _event(self, name: str, **fields: Any) -> bytes:
        return record({"type": name, **fields}, event=name)


Speech = ChatSpeech | MessagesSpeech
