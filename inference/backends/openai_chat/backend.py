"""Any server that speaks chat completions: OpenAI, vLLM, llama.cpp, Ollama, SGLang and the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from gateway_site.http_client.addresses import BaseUrl
from gateway_site.http_client.client import Client, Request
from inference.backends.base import Dispatch
from inference.backends.conversation import bounded_stream_bytes, converse, encoded
from inference.backends.credentials import checked_credential
from inference.backends.openai_chat.reader import ChatReader
from inference.backends.openai_chat.request import SERVERS, chat_body, headers_for
from inference.backends.usage import Alert, log_alert
from inference.events import Event, Prompt


class OpenAIBackend:
    """
    One address. `server` is a key of `openai_request.SERVERS`; `lacks` are options that this deployment
    is known not to have beyond what its kind of server has not.
    """

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
        self.lacks = self._server.lacks | frozenset(lacks)
        self._client = client
        self._name = name
        self._url = f"{base_url}/chat/completions"
        self._credential = checked_credential(api_key)
        self._alert = alert or log_alert(name)
        self._headers = headers_for(self._server, api_key)

    def __repr__(self) -> str:
        return f"<OpenAIBackend {self._name}>"

    def generate(self, prompt: Prompt, *, model: str, dispatch: Dispatch) -> AsyncGenerator[Event, None]:
        request = Request(
            url=self._url,
            body=encoded(chat_body(prompt, model=model, server=self._server)),
            headers=self._headers,
            credential=self._credential,
            backend=self._name,
            max_stream_bytes=bounded_stream_bytes(prompt.output_bound * prompt.completions),
        )
        reader = ChatReader(
            completions=prompt.completions,
            alert=self._alert,
            credential=self._credential,
        )
        return converse(self._client, request, reader, dispatch)
