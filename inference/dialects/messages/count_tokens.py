"""The route that counts the tokens of a Messages-shaped input: its headers and its documentation."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter

from gateway_site.api.envelope import TOKEN_COUNT_PATH
from gateway_site.api.openapi.document import COUNT_STATUSES, WrappedErrorEnvelope
from inference.dialects.documentation import RouteDocumentation
from inference.dialects.messages.request import CountTokensRequest, TokenCount

PATH = TOKEN_COUNT_PATH
VERSION_HEADER = "anthropic-version"
BETA_HEADER = "anthropic-beta"
MAX_BETA_LENGTH = 512
DOCUMENTATION = RouteDocumentation(
    operation_id="countTokens",
    summary="Count the input tokens of a Messages-shaped input",
    description=(
        "Nothing is generated, held or charged. An estimate where no tokenizer of the model is at hand."
    ),
    request=CountTokensRequest,
    response=TokenCount,
    headers=(
        OpenApiParameter(VERSION_HEADER, {"type": "string"}, location=OpenApiParameter.HEADER),
        OpenApiParameter(
            BETA_HEADER,
            {"type": "string", "maxLength": MAX_BETA_LENGTH},
            location=OpenApiParameter.HEADER,
            description="Flags, separated by commas.",
        ),
    ),
    error_statuses=COUNT_STATUSES,
    error_envelope=WrappedErrorEnvelope,
)
