"""Any server that speaks chat completions: OpenAI, vLLM, llama.cpp, Ollama, SGLang and the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from inference.backends.anthropic.token_count import count_by_messages_api
from inference.backends.base import Dispatch, EncodeBody
from inference.backends.conversation import bounded_stream_bytes, converse, encode_json
from inference.backends.http_backend import HttpBackend
from inference.backends.openai_chat.reader import ChatReader
from inference.backends.openai_chat.request import SERVERS, chat_body, credential_headers, headers_for
from inference.backends.usage import Alert
from inference.events import Event
from inference.prompt import Prompt


@dataclass(repr=False, eq=False, kw_only=True)
class OpenAICompatibleBackend(HttpBackend):
    """What both interfaces of such a server share. `server` is a key of `request.SERVERS`."""

    server: str = "other"

    def __post_init__(self, alert: Alert | None) -> None:
        super().__post_init__(alert)
        self._server = SERVERS[self.server]
        self.lacks |= self._server.lacks
        self._headers = headers_for(self._server, self.api_key)

    @property
    def models_url(self) -> str:
        return f"{self.base_url}/models"

    def credential_headers(self) -> dict[str, str]:
        return credential_headers(self.api_key)


class OpenAIBackend(OpenAICompatibleBackend):
    """One address that is asked through its chat completions."""

    def generate(self, prompt: Prompt, *, model: str, dispatch: Dispatch) -> AsyncGenerator[Event, None]:
        request = self.request(
            f"{self.base_url}/chat/completions",
            self._headers,
            encode_json(chat_body(prompt, model=model, server=self._server)),
            bounded_stream_bytes(prompt.output_bound * prompt.completions),
        )
        reader = ChatReader(completions=prompt.completions, alert=self._alert, credential=self.api_key)
        return converse(self.client, request, reader, dispatch)

    async def count_tokens(self, body: Mapping[str, Any], encode: EncodeBody) -> int | None:
        if not self._server.counts_messages:
            return None
        return await count_by_messages_api(self, body, encode)
