"""What the fault-injecting upstream says in the Responses API: pure, bytes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.inference.backends.upstreams.faulty.bodies import Usage, UsageOf, record

ITEM = {"id": "msg_1", "type": "message", "role": "assistant"}


class ResponsesSpeech:
    """The records of a response of one message, with the methods of `ChatSpeech`."""

    choices = 1

    def __init__(self, body: dict[str, Any], usage_of: UsageOf, *, is_cumulative: bool) -> None:
        self.body = body
        self.usage_of = usage_of
        self.prompt_tokens = 11
        self.spoken = 0
        self._texts: list[str] = []
        self._is_completed = False

    def opening(self) -> Iterator[bytes]:
        yield self._event("response.created", response=self._response("in_progress"))

    def token(self, text: str, kind: str = "content", index: int = 0) -> bytes:
        self.spoken += 1
        opened = b"" if self._texts else self._event("response.output_item.added", output_index=0, item=ITEM)
        self._texts.append(text)
        delta = {"output_index": 0, "item_id": "msg_1", "content_index": 0, "delta": text}
        return opened + self._event("response.output_text.delta", **delta)

    def tool(self, position: int, fragment: dict[str, Any]) -> bytes:
        raise NotImplementedError("no script needs a tool call here")

    def finish(self, reason: str) -> Iterator[bytes]:
        if self._texts:
            yield self._event(
                "response.output_item.done", output_index=0, item=self._item("".join(self._texts))
            )

    def usage(self, completion: int | None = None) -> bytes:
        """The end of the response: usage comes with nothing else."""
        usage = self.usage_of(self.prompt_tokens, self.spoken if completion is None else completion)
        return self._completed(usage)

    def done(self) -> bytes:
        return b": done\n\n" if self._is_completed else self._completed(None)

    def error(self, message: str) -> bytes:
        return self._event("error", error={"code": "server_error", "message": message, "param": None})

    def whole(self, text: str) -> dict[str, Any]:
        usage = _renamed(self.usage_of(self.prompt_tokens, self.spoken))
        return {**self._response("completed"), "output": [self._item(text)], "usage": usage}

    def _completed(self, usage: Usage) -> bytes:
        self._is_completed = True
        response = {**self._response("completed"), "output": [], "usage": _renamed(usage)}
        return self._event("response.completed", response=response)

    def _response(self, status: str) -> dict[str, Any]:
        return {"id": "resp_1", "object": "response", "model": self.body.get("model"), "status": status}

    def _item(self, text: str) -> dict[str, Any]:
        return {**ITEM, "content": [{"type": "output_text", "text": text, "annotations": []}]}

    def _event(self, name: str, **fields: Any) -> bytes:
        return record({"type": name, **fields}, event=name)


def _renamed(usage: Usage) -> Usage:
    """The same figures under the names that the Responses API gives them."""
    if usage is None:
        return None
    return {
        "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "total_tokens": usage["total_tokens"],
    }
