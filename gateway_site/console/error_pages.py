"""What a person sees where a page could not be made."""

from __future__ import annotations

from django.contrib.sessions.exceptions import SessionInterrupted
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from gateway_site.api import exception_handler, request_id
from gateway_site.api.errors import ApiError, Unavailable
from gateway_site.console.login import views


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django takes a session that could not be saved for one that was deleted, whatever the reason was."""
    if isinstance(exception, SessionInterrupted):
        behind: BaseException | None = exception
        while behind is not None and not isinstance(behind, OperationalError | InterfaceError):
            behind = behind.__context__
        if behind is not None:
            return _answer(request, exception_handler.to_api_error(behind))
    return exception_handler.bad_request(request, exception)


def failed(request: HttpRequest) -> HttpResponse:
    """
    For whatever escaped a page or a middleware: the console's page or the envelope.

    A dependency that does not answer is a 503 that says so and when to come back; the rest is a 500. Neither
    page needs a session or the database.
    """
    return _answer(request, exception_handler.unhandled())


def _answer(request: HttpRequest, error: ApiError) -> HttpResponse:
    if not request.path.startswith("/admin/"):
        return exception_handler.respond(error, request.path)
    if not isinstance(error, Unavailable):
        return views.broken(request)
    page = render_to_string("admin/unavailable.html", {"request_id": request_id.current()})
    return HttpResponse(page, status=error.status, headers=error.headers)
