"""The generation endpoints in the OpenAPI document: consumers are no views, so the generator needs a hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.viewsets import ViewSet

from gateway_site.api.openapi.document import EXTENSION
from inference.dialects import registry
from inference.dialects.documentation import RouteDocumentation, StreamDocumentation
from inference.dialects.messages import count_tokens
from inference.serving.affinity import MAX_SESSION_LENGTH, SESSION_ALIAS, SESSION_HEADER
from inference.serving.consumers import PERMISSION
from inference.serving.cost_headers import COST_HEADER, INCLUDE_COST_HEADER
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
COST_PARAMETERS = [
    OpenApiParameter(
        INCLUDE_COST_HEADER,
        {"type": "string", "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"},
        location=OpenApiParameter.HEADER,
        description=f"`true` asks for what the request cost: in `{COST_HEADER}` of a JSON answer, or as "
        "`cost` beside the usage of a stream, which chat is asked for. Without it the charge is not final.",
        extensions=EXTENSION,
    ),
    OpenApiParameter(
        COST_HEADER,
        {"type": "string", "pattern": "^[0-9]+(\\.[0-9]{1,9})?$"},
        location=OpenApiParameter.HEADER,
        response=[200],
        description=f"What was charged, in USD, where `{INCLUDE_COST_HEADER}: true` asked for it.",
        extensions=EXTENSION,
    ),
]


class MsgspecComponents(OpenApiSerializerExtension):
    """Describes a body by the msgspec type that validates it, so that there is one source."""

    target_class = "msgspec.Struct"
    match_subclasses = True

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        # The generator itself adds "Request" to what goes in.
        name = str(self.target.__name__)
        return name.removesuffix("Request") if direction == "request" else name

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        _, components = msgspec.json.schema_components(
            [self.target, *getattr(self.target, "payloads", ())], ref_template="#/components/schemas/{name}"
        )
        own = components.pop(self.target.__name__)
        for name, schema in components.items():
            auto_schema.registry.register_on_missing(
                ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema)
            )
        return own


def record_of(stream: StreamDocumentation) -> type[msgspec.Struct]:
    """Describe a record of a stream: its data is a payload, as JSON in a string, or the word that ends it."""
    name = stream.payload.__name__
    content: dict[str, Any] = {
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": f"#/components/schemas/{name}"},
    }
    if stream.last is not None:
        content = {"anyOf": [{"const": stream.last}, content]}
    data = Annotated[str, msgspec.Meta(description=stream.description, extra_json_schema=content)]
    # What the reference points at is described along with it.
    return msgspec.defstruct(f"{name}Record", [("data", data)], namespace={"payloads": (stream.payload,)})


def view_of(documentation: RouteDocumentation, parameters: Iterable[OpenApiParameter] = ()) -> type[ViewSet]:
    """Make the view that the generator describes. Nothing routes to it: a consumer serves the path."""
    responses: dict[Any, type[msgspec.Struct]] = {(200, "application/json"): documentation.response}
    if documentation.stream is not None:
        responses[200, "text/event-stream"] = record_of(documentation.stream)

    class DocumentedRoute(ViewSet):
        authentication_classes = [CustomerKeyAuthentication]
        required_permissions = {"create": PERMISSION}
        error_statuses = documentation.error_statuses
        error_envelope = documentation.error_envelope

        @extend_schema(
            tags=["Inference"],
            operation_id=documentation.operation_id,
            summary=documentation.summary,
            description=documentation.description,
            parameters=[*SESSION_PARAMETERS, *parameters, *documentation.headers],
            request={"application/json": documentation.request},
            responses=responses,
        )
        def create(self, request: Any) -> None: ...

    return DocumentedRoute


def documented_views() -> Iterator[tuple[str, type[ViewSet]]]:
    """Each path that is served ahead of Django, with the view that describes it."""
    for dialect in registry.DIALECTS:
        yield dialect.path, view_of(dialect.documentation, COST_PARAMETERS)
    yield count_tokens.PATH, view_of(count_tokens.DOCUMENTATION)


def add_generation_routes(endpoints: list[tuple[str, str, str, Any]]) -> list[tuple[str, str, str, Any]]:
    """Add the routes that no URL configuration has: a preprocessing hook of the generator."""
    routes = [(path, path, "POST", view.as_view({"post": "create"})) for path, view in documented_views()]
    return [*endpoints, *routes]
