"""The Messages API: answers as a stream, and its exact count of input tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

import msgspec

from gateway_site.api.errors import BackendFailed
from gateway_site.http_client.addresses import BaseUrl
from gateway_site.http_client.client import MAX_ERROR_BODY_BYTES, Client, Request
from inference.backends.anthropic.reader import MessagesReader
from inference.backends.anthropic.request import LACKS, Thinking, messages_body
from inference.backends.base import Dispatch, nothing_to_mark
from inference.backends.conversation import bounded_stream_bytes, converse, encoded
from inference.backends.credentials import checked_credential
from inference.backends.usage import Alert, log_alert
from inference.events import Event, Prompt

VERSION = "2023-06-01"


class AnthropicBackend:
    """
    One address, with or without `/v1` at its end.

    `thinking` is how the models here are told to think: with a budget of tokens, or by effort alone.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        base_url: BaseUrl,
        api_key: str = "",
        thinking: Thinking = "budget",
        has_answer_schemas: bool = True,
        lacks: Iterable[str] = (),
        alert: Alert | None = None,
    ) -> None:
        self.lacks = LACKS | frozenset(lacks) | (frozenset() if has_answer_schemas else {"json_schema"})
        self._client = client
        self._name = name
        self._url = f"{str(base_url).removesuffix('/v1')}/v1/messages"
        self._thinking: Thinking = thinking
        self._credential = checked_credential(api_key)
        self._alert = alert or log_alert(name)
        self._headers = {"Content-Type": "application/json", "anthropic-version": VERSION}
        if api_key:
            self._headers["x-api-key"] = api_key

    def __repr__(self) -> str:
        return f"<AnthropicBackend {self._name}>"

    def generate(self, prompt: Prompt, *, model: str, dispatch: Dispatch) -> AsyncGenerator[Event, None]:
        body = messages_body(prompt, model=model, thinking=self._thinking)
        reader = MessagesReader(alert=self._alert, credential=self._credential)
        request = self._request(self._url, body, bounded_stream_bytes(prompt.output_bound))
        return converse(self._client, request, reader, dispatch)

    def count_request(self, body: Mapping[str, Any]) -> Request:
        """The request for `count_tokens`, of a Messages-shaped body that the caller has checked."""
        return self._request(f"{self._url}/count_tokens", body, MAX_ERROR_BODY_BYTES)

    async def count_tokens(self, request: Request) -> int:
        """Input tokens, as the backend counts them. Generates nothing."""
        answer = await self._client.post(request, nothing_to_mark)
        try:
            counted = msgspec.json.decode(await answer.whole())
        except (msgspec.DecodeError, ValueError, RecursionError):
            counted = None
        finally:
            answer.close()
        tokens = counted.get("input_tokens") if isinstance(counted, dict) else None
        if type(tokens) is not int or tokens < 0:
            raise BackendFailed(is_free=True)
        return tokens

    def _request(self, url: str, body: Mapping[str, Any], max_stream_bytes: int) -> Request:
        return Request(
            url=url,
            body=encoded(body),
            headers=self._headers,
            credential=self._credential,
            backend=self._name,
            max_stream_bytes=max_stream_bytes,
        )
