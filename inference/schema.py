"""The generation endpoints in the OpenAPI document: consumers are no views, so the generator needs a hand."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.viewsets import ViewSet

from gateway_site.api.envelope import TOKEN_COUNT_PATH
from gateway_site.api.openapi.document import (
    COUNT_STATUSES,
    GENERATION_STATUSES,
    RESPONSE_STATUSES,
    WrappedErrorEnvelope,
)
from inference.dialects.chat import dialect
from inference.dialects.chat.request import ChatCompletionRequest
from inference.dialects.chat.response import ChatCompletion, ChatCompletionChunk
from inference.dialects.messages.request import CountTokensRequest, TokenCount
from inference.dialects.responses import dialect as responses
from inference.dialects.responses.request import ResponseRequest
from inference.dialects.responses.response import ResponseEvent, ResponseObject
from inference.serving.affinity import MAX_SESSION_LENGTH, SESSION_ALIAS, SESSION_HEADER
from inference.serving.consumers import PERMISSION
from inference.serving.count_tokens_consumer import BETA_HEADER, MAX_BETA_LENGTH, VERSION_HEADER
from organization.authentication import CustomerKeyAuthentication

# Blanks around a header's value are not part of it.
PRINTABLE = "^[\\x21-\\x7e]([\\x20-\\x7e]*[\\x21-\\x7e])?$"
SESSION = {"type": "string", "minLength": 1, "maxLength": MAX_SESSION_LENGTH, "pattern": PRINTABLE}
SESSION_PARAMETERS = [
    OpenApiParameter(
        SESSION_HEADER,
        SESSION,
        location=OpenApiParameter.HEADER,
        description="A cache-affinity hint, isolated to the organization and project.",
    ),
    OpenApiParameter(
        SESSION_ALIAS,
        SESSION,
        location=OpenApiParameter.HEADER,
        description=f"Another name for {SESSION_HEADER}. Where both are sent, they are equal.",
    ),
]


class MsgspecComponents(OpenApiSerializerExtension):
    """The types that validate a body are its description: one source."""

    target_class = "msgspec.Struct"
    match_subclasses = True

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        # The generator itself adds "Request" to what goes in.
        name = str(self.target.__name__)
        return name.removesuffix("Request") if direction == "request" else name

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        _, components = msgspec.json.schema_components(
            [self.target, *getattr(self.target, "holds", ())], ref_template="#/components/schemas/{name}"
        )
        own = components.pop(self.target.__name__)
        for name, schema in components.items():
            auto_schema.registry.register_on_missing(
                ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema)
            )
        return own


def record_of(
    payload: type[msgspec.Struct], description: str, *, last: str | None = None
) -> type[msgspec.Struct]:
    """A server-sent event whose data is a payload, as JSON in a string, or the word that ends the stream."""
    content: dict[str, Any] = {
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": f"#/components/schemas/{payload.__name__}"},
    }
    if last is not None:
        content = {"anyOf": [{"const": last}, content]}
    data = Annotated[str, msgspec.Meta(description=description, extra_json_schema=content)]
    # What the reference points at is described along with it.
    return msgspec.defstruct(f"{payload.__name__}Record", [("data", data)], namespace={"holds": (payload,)})


class ChatCompletionsRoute(ViewSet):
    """Describes `consumers.chat_completions`, which serves it. Nothing routes here."""

    authentication_classes = [CustomerKeyAuthentication]
    required_permissions = {"create": PERMISSION}
    error_statuses = GENERATION_STATUSES

    @extend_schema(
        tags=["Inference"],
        operation_id="createChatCompletion",
        summary="Generate a chat completion",
        parameters=SESSION_PARAMETERS,
        request={"application/json": ChatCompletionRequest},
        responses={
            (200, "application/json"): ChatCompletion,
            (200, "text/event-stream"): record_of(
                ChatCompletionChunk,
                "A chunk; in the last event `[DONE]`, or after a failure an `error`.",
                last="[DONE]",
            ),
        },
    )
    def create(self, request: Any) -> None:
        """
        One JSON object, or with `stream` a stream of server-sent events, each holding a chunk. The last
        one is `[DONE]`; after a failure it is an `error` instead.
        """


class ResponsesRoute(ViewSet):
    """Describes `consumers.responses_endpoint`."""

    authentication_classes = [CustomerKeyAuthentication]
    required_permissions = {"create": PERMISSION}
    error_statuses = RESPONSE_STATUSES

    @extend_schema(
        tags=["Inference"],
        operation_id="createResponse",
        summary="Generate a stateless response",
        parameters=SESSION_PARAMETERS,
        request={"application/json": ResponseRequest},
        responses={
            (200, "application/json"): ResponseObject,
            (200, "text/event-stream"): record_of(ResponseEvent, "An event, named by its `type`."),
        },
    )
    def create(self, request: Any) -> None:
        """
        One JSON object, or with `stream` a stream of typed events. The last one is `response.completed`,
        `response.incomplete` or `response.failed`; before the last of these comes an `error`.
        """


class CountTokensRoute(ViewSet):
    """Describes `count_consumer.count_tokens`."""

    authentication_classes = [CustomerKeyAuthentication]
    required_permissions = {"create": PERMISSION}
    error_statuses = COUNT_STATUSES
    error_envelope = WrappedErrorEnvelope

    @extend_schema(
        tags=["Inference"],
        operation_id="countTokens",
        summary="Count the input tokens of a Messages-shaped input",
        parameters=[
            *SESSION_PARAMETERS,
            OpenApiParameter(VERSION_HEADER, {"type": "string"}, location=OpenApiParameter.HEADER),
            OpenApiParameter(
                BETA_HEADER,
                {"type": "string", "maxLength": MAX_BETA_LENGTH},
                location=OpenApiParameter.HEADER,
                description="Flags, separated by commas.",
            ),
        ],
        request={"application/json": CountTokensRequest},
        responses={200: TokenCount},
    )
    def create(self, request: Any) -> None:
        """Nothing is generated, held or charged. An estimate where no tokenizer of the model is at hand."""


ROUTES: tuple[tuple[str, type[ViewSet]], ...] = (
    (dialect.PATH, ChatCompletionsRoute),
    (responses.PATH, ResponsesRoute),
    (TOKEN_COUNT_PATH, CountTokensRoute),
)


def add_generation_routes(endpoints: list[tuple[str, str, str, Any]]) -> list[tuple[str, str, str, Any]]:
    """A preprocessing hook of the generator."""
    routes = [(path, path, "POST", route.as_view({"post": "create"})) for path, route in ROUTES]
    return [*endpoints, *routes]
