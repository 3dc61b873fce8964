"""Limits on the addresses and cookies that the console's pages read, checked before any page does."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from gateway_site.api.bodies.size_limits import CONSOLE
from gateway_site.api.errors import InvalidRequest
from gateway_site.api.exception_handler import respond

MOST_QUERY_BYTES = 8 * 1024
MOST_PATH_CHARACTERS = 1024
# As Django makes them. Anything else is nobody's, and may hold what a database does not take.
SESSION_KEY = re.compile(r"[a-z0-9]{32}")


@sync_and_async_middleware
def validate_console_request(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Django middleware, ahead of every other: refuses addresses too long or with a NUL."""
    if iscoroutinefunction(get_response):

        async def validated_async(request: HttpRequest) -> HttpResponse:
            refusal = _refusal_of(request)
            if refusal is not None:
                return refusal
            return await cast("Awaitable[HttpResponse]", get_response(request))

        return validated_async

    def validated(request: HttpRequest) -> HttpResponse:
        refusal = _refusal_of(request)
        return refusal if refusal is not None else cast("HttpResponse", get_response(request))

    return validated


def _refusal_of(request: HttpRequest) -> HttpResponse | None:
    if not request.path.startswith(CONSOLE):
        return None
    if not SESSION_KEY.fullmatch(request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")):
        request.COOKIES.pop(settings.SESSION_COOKIE_NAME, None)
    problem = _problem(request.path, request.META.get("QUERY_STRING", ""))
    return respond(InvalidRequest(problem), request.path) if problem else None


def _problem(path: str, query: str) -> str:
    if len(path) > MOST_PATH_CHARACTERS or len(query) > MOST_QUERY_BYTES:
        bounds = (
            f"{MOST_PATH_CHARACTERS:,} characters before the question mark and {MOST_QUERY_BYTES:,} after it"
        )
        return f"The address is too long: at most {bounds}."
    if "\0" in path or "%00" in query or "\0" in query:
        return "The address holds a NUL character, which nothing in the console can be named with."
    return ""
