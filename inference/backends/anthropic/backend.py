"""The Messages API: answers as a stream, and its exact count of input tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from inference.backends.anthropic.reader import MessagesReader
from inference.backends.anthropic.request import (
    LACKS,
    Thinking,
    credential_headers,
    messages_body,
    messages_headers,
    messages_url,
)
from inference.backends.anthropic.token_count import count_by_messages_api
from inference.backends.base import Dispatch, EncodeBody
from inference.backends.conversation import bounded_stream_bytes, converse, encode_json
from inference.backends.http_backend import HttpBackend
from inference.backends.usage import Alert
from inference.events import Event
from inference.prompt import Prompt


@dataclass(repr=False, eq=False, kw_only=True)
class AnthropicBackend(HttpBackend):
    """
    One address, with or without `/v1` at its end.

    `thinking` is how thinking is requested: with a budget of tokens, or by effort alone.
    """

    thinking: Thinking = "budget"
    has_answer_schemas: bool = True

    def __post_init__(self, alert: Alert | None) -> None:
        super().__post_init__(alert)
        self.lacks |= LACKS if self.has_answer_schemas else LACKS | {"json_schema"}
        self._url = messages_url(self.base_url)
        self._headers = messages_headers(self.api_key)

    @property
    def models_url(self) -> str:
        return f"{self._url.removesuffix('/messages')}/models?limit=1000"

    def credential_headers(self) -> dict[str, str]:
        return credential_headers(self.api_key)

    def generate(self, prompt: Prompt, *, model: str, dispatch: Dispatch) -> AsyncGenerator[Event, None]:
        body = encode_json(messages_body(prompt, model=model, thinking=self.thinking))
        request = self.request(self._url, self._headers, body, bounded_stream_bytes(prompt.output_bound))
        reader = MessagesReader(alert=self._alert, credential=self.api_key)
        return converse(self.client, request, reader, dispatch)

    async def count_tokens(self, body: Mapping[str, Any], encode: EncodeBody) -> int | None:
        return await count_by_messages_api(self, body, encode)
