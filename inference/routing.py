"""The paths that are served ahead of Django, for `channels.routing.URLRouter`."""

from __future__ import annotations

from django.urls import path

from gateway_site.api.envelope import TOKEN_COUNT_PATH
from inference.consumers import chat_completions, responses_endpoint
from inference.count_consumer import count_tokens

urlpatterns = [
    path(route.lstrip("/"), consumer)  # type: ignore[arg-type]
    for route, consumer in (
        (chat_completions.dialect.path, chat_completions),
        (responses_endpoint.dialect.path, responses_endpoint),
        (TOKEN_COUNT_PATH, count_tokens),
    )
]
