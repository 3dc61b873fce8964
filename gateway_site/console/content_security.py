"""
The Content-Security-Policy header: which scripts, styles and addresses a page may use.

No page has a script inside of it, so a script that somebody smuggled into a name or an answer of a model does
not run: `script-src` has no 'unsafe-inline' and no nonce to steal. What a page needs is a file of ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from wsgiref.headers import Headers

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

Responder = Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]]


def _policy(scripts: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            # The theme writes its colours into the page and sets `style` attributes, and so does Swagger UI.
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            # The live tail's WebSocket is of the same origin.
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


PAGE = _policy("'self'")
# The theme's attributes are expressions that Alpine compiles while the page runs. Alpine's build for strict
# policies knows neither arrow functions nor globals such as `localStorage`, and the theme uses both.
CONSOLE = _policy("'self' 'unsafe-eval'")
# What is not a page: a browser that shows it as one anyway finds nothing in it to run.
DATA = "default-src 'none'; frame-ancestors 'none'"
FILE = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
PAGE_HEADERS = {
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@sync_and_async_middleware
def content_security_middleware(get_response: Any) -> Responder:
    """Django middleware, outermost: the header is on every page, whichever layer refused the request."""
    if iscoroutinefunction(get_response):

        async def respond_async(request: HttpRequest) -> HttpResponse:
            return _with_policy(request, await get_response(request))

        return respond_async

    def respond(request: HttpRequest) -> HttpResponse:
        return _with_policy(request, get_response(request))

    return respond


def _with_policy(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    if not response.headers.get("Content-Type", "").startswith("text/html"):
        response.headers["Content-Security-Policy"] = DATA
        return response
    is_console = request.path.startswith("/admin/")
    response.headers["Content-Security-Policy"] = CONSOLE if is_console else PAGE
    for name, value in PAGE_HEADERS.items():
        response.headers[name] = value
    return response


def add_static_headers(headers: Headers, path: str, url: str) -> None:
    """Add headers to static files: a picture or page among them, opened by its own address, runs nothing."""
    headers["Content-Security-Policy"] = FILE
    headers["X-Content-Type-Options"] = "nosniff"
