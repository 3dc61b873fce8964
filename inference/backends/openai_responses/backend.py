"""A server that speaks the Responses API by itself: OpenAI, and those that imitate it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from inference.backends.base import Dispatch
from inference.backends.conversation import bounded_stream_bytes, converse, encode_json
from inference.backends.openai_chat.backend import OpenAICompatibleBackend
from inference.backends.openai_responses.reader import ResponsesReader
from inference.backends.openai_responses.request import CUT_SILENTLY, LACKS, LACKS_OF_SERVER, responses_body
from inference.backends.usage import Alert
from inference.events import Event
from inference.prompt import Prompt


class OpenAIResponsesBackend(OpenAICompatibleBackend):
    """One address that is asked through its Responses API."""

    def __post_init__(self, alert: Alert | None) -> None:
        super().__post_init__(alert)
        self.lacks |= LACKS | LACKS_OF_SERVER.get(self.server, frozenset())
        self._cuts_silently = self.server in CUT_SILENTLY

    def generate(self, prompt: Prompt, *, model: str, dispatch: Dispatch) -> AsyncGenerator[Event, None]:
        request = self.request(
            f"{self.base_url}/responses",
            self._headers,
            encode_json(responses_body(prompt, model=model, server=self._server)),
            bounded_stream_bytes(prompt.output_bound),
        )
        reader = ResponsesReader(
            alert=self._alert,
            credential=self.api_key,
            silent_bound=prompt.output_bound if self._cuts_silently else None,
        )
        return converse(self.client, request, reader, dispatch)
