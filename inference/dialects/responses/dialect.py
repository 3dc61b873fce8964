"""Responses: the dialect of POST /v1/responses."""

from __future__ import annotations

import time
from functools import partial

from gateway_site.api.openapi.document import RESPONSE_STATUSES
from inference.dialects.base import Dialect, RequestContext
from inference.dialects.documentation import RouteDocumentation, StreamDocumentation
from inference.dialects.responses.encrypted_reasoning import seal, unseal
from inference.dialects.responses.parse import ParsedResponseRequest, parse
from inference.dialects.responses.request import PATH, ResponseRequest
from inference.dialects.responses.response import ResponseEvent, ResponseObject
from inference.dialects.responses.writer import ResponseInfo, ResponseWriter


class ResponsesDialect(Dialect[ParsedResponseRequest]):
    path = PATH
    documentation = RouteDocumentation(
        operation_id="createResponse",
        summary="Generate a stateless response",
        description=(
            "One JSON object, or with `stream` a stream of typed events. The last one is "
            "`response.completed`,\n`response.incomplete` or `response.failed`; "
            "before the last of these comes an `error`."
        ),
        request=ResponseRequest,
        response=ResponseObject,
        stream=StreamDocumentation(payload=ResponseEvent, description="An event, named by its `type`."),
        error_statuses=RESPONSE_STATUSES,
    )

    def parse(self, body: bytes, context: RequestContext, /) -> ParsedResponseRequest:
        # Reasoning that was sealed for another organization is refused.
        unseal_own = partial(unseal, organization_id=context.organization_id)
        return parse(body, unseal=unseal_own, remote_images=context.remote_images)

    def writer(self, request: ParsedResponseRequest, context: RequestContext, /) -> ResponseWriter:
        return ResponseWriter(
            ResponseInfo(
                id=f"resp_{context.request_id.hex}",
                created=int(time.time()),
                model=request.prompt.model,
                echo=request.echo,
                summarizes=request.summarizes,
                seal=partial(seal, organization_id=context.organization_id) if request.seals else None,
            )
        )


RESPONSES = ResponsesDialect()
