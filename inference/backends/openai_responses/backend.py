"""A server that speaks the Responses API by itself: OpenAI, and those that imitate it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from gateway_site.http_client.addresses import BaseUrl
from gateway_site.http_client.client import Client, Request
from inference.backends.base import Dispatch
from inference.backends.conversation import bounded_stream_bytes, converse, encoded
from inference.backends.credentials import checked_credential
from inference.backends.openai_chat.request import SERVERS, headers_for
from inference.backends.openai_responses.reader import ResponsesReader
from inference.backends.openai_responses.request import CUT_SILENTLY, LACKS, LACKS_OF_SERVER, responses_body
from inference.backends.usage import Alert, log_alert
from inference.events import Event, Prompt


class OpenAIResponsesBackend:
    """One address. `server` and `lacks` are those of OpenAIBackend."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        base_url: BaseUrl,
        api_key: str = "",
        server: str = "other",
        lacks: Iterable[str] = (),
        alert: Alert | None = None,
    ) -> None:
        self._server = SERVERS[server]
        self.lacks = LACKS | self._server.lacks | LACKS_OF_SERVER.get(server, frozenset()) | frozenset(lacks)
        self._cuts_silently = server in CUT_SILENTLY
        self._client = client
        self._name = name
        self._url = f"{base_url}/responses"
        self._credential = checked_credential(api_key)
        self._alert = alert or log_alert(name)
        self._headers = headers_for(self._server, api_key)

    def __repr__(self) -> str:
        return f"<OpenAIResponsesBackend {self._name}>"

    def generate(self, prompt: Prompt, *, model: str, dispatch: Dispatch) -> AsyncGenerator[Event, None]:
        request = Request(
            url=self._url,
            body=encoded(responses_body(prompt, model=model, server=self._server)),
            headers=self._headers,
            credential=self._credential,
            backend=self._name,
            max_stream_bytes=bounded_stream_bytes(prompt.output_bound),
        )
        reader = ResponsesReader(
            alert=self._alert,
            credential=self._credential,
            silent_bound=prompt.output_bound if self._cuts_silently else None,
        )
        return converse(self._client, request, reader, dispatch)
