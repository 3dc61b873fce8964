"""GET /openapi.json: the interface description, generated once in each process."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.views import SpectacularJSONAPIView

_generating = threading.Lock()


class OpenApiDocumentView(SpectacularJSONAPIView):
    """
    Serves the document from memory.

    Generating it takes a quarter of a second of the interpreter, and anybody may ask for it without a key.
    """

    def _get_schema_response(self, request: Any) -> HttpResponse:
        with _generating:  # the first requests come at once, and one of them is enough
            document = _document()
        return HttpResponse(document, content_type=OpenApiJsonRenderer.media_type)


@lru_cache(maxsize=1)
def _document() -> bytes:
    generated: bytes = OpenApiJsonRenderer().render(SchemaGenerator().get_schema(public=True))
    return generated
