"""Chat completions: the dialect of POST /v1/chat/completions."""

from __future__ import annotations

import time

from gateway_site.api.openapi.document import GENERATION_STATUSES
from inference.dialects.base import Dialect, RequestContext
from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.parse import ParsedChatRequest, parse
from inference.dialects.chat.request import PATH, ChatCompletionRequest
from inference.dialects.chat.response import ChatCompletion, ChatCompletionChunk
from inference.dialects.chat.writer import ChatWriter
from inference.dialects.documentation import RouteDocumentation, StreamDocumentation


class ChatDialect(Dialect[ParsedChatRequest]):
    path = PATH
    documentation = RouteDocumentation(
        operation_id="createChatCompletion",
        summary="Generate a chat completion",
        description=(
            "One JSON object, or with `stream` a stream of server-sent events, each holding a chunk. "
            "The last\none is `[DONE]`; after a failure it is an `error` instead."
        ),
        request=ChatCompletionRequest,
        response=ChatCompletion,
        stream=StreamDocumentation(
            payload=ChatCompletionChunk,
            description="A chunk; in the last event `[DONE]`, or after a failure an `error`.",
            last="[DONE]",
        ),
        error_statuses=GENERATION_STATUSES,
    )

    def parse(self, body: bytes, context: RequestContext, /) -> ParsedChatRequest:
        return parse(body, remote_images=context.remote_images)

    def writer(self, request: ParsedChatRequest, context: RequestContext, /) -> ChatWriter:
        return ChatWriter(
            CompletionInfo(
                id=f"chatcmpl-{context.request_id.hex}",
                created=int(time.time()),
                model=request.prompt.model,
                include_usage=request.include_usage,
                show_reasoning=request.prompt.reasoning.shown,
            ),
            is_stream=request.stream,
        )


CHAT = ChatDialect()
