"""
The console's error pages: 400, 403, 404, a failed CSRF check, 500 and 503. `urls` and the settings name them.

People of the console get a page of `templates/admin/errors`; programs, and whoever is not logged in, get the
API's error envelope.
"""

from __future__ import annotations

from django.contrib import admin
from django.contrib.sessions.exceptions import SessionInterrupted
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.views.csrf import csrf_failure

from gateway_site.api import exception_handler, request_id
from gateway_site.api.errors import ApiError, Unavailable


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """
    Answer 400, or 503 where the session could not be saved because the database is away.

    Django takes a session that could not be saved for one that was deleted, whatever the reason was.
    """
    if isinstance(exception, SessionInterrupted):
        cause: BaseException | None = exception
        while cause is not None and not isinstance(cause, OperationalError | InterfaceError):
            cause = cause.__context__
        if cause is not None:
            return _respond(request, exception_handler.to_api_error(cause))
    return exception_handler.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 403: a page for people of the console, the envelope for programs."""
    if not _is_in_console(request):
        return exception_handler.forbidden(request, exception)
    return _console_page(request, "admin/errors/403.html", "Permission denied", 403)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404: a page for people of the console, the envelope for programs."""
    if not _is_in_console(request):
        return exception_handler.not_found(request, exception)
    return _console_page(request, "admin/errors/404.html", "Page not found", 404)


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer 403 to a form without its CSRF token: nearly always a page from before the last log-in."""
    if not _is_in_console(request):
        return csrf_failure(request, reason)
    return _console_page(request, "admin/errors/403_csrf.html", "Page expired", 403)


def server_error(request: HttpRequest) -> HttpResponse:
    """
    Answer whatever escaped a page or a middleware, with the console's page or the envelope.

    A dependency that does not answer is a 503 that says so and when to come back; everything else is a 500.
    Neither page needs a session or the database.
    """
    return _respond(request, exception_handler.current_api_error())


def _respond(request: HttpRequest, error: ApiError) -> HttpResponse:
    if not request.path.startswith("/admin/"):
        return exception_handler.respond(error, request.path)
    # Nothing of it is said to whom it may not concern: the log has the details, under this id.
    context = {"request_id": request_id.current()}
    if not isinstance(error, Unavailable):
        return HttpResponse(render_to_string("admin/errors/500.html", context), status=500)
    page = render_to_string("admin/errors/503.html", context)
    return HttpResponse(page, status=error.status, headers=error.headers)


def _is_in_console(request: HttpRequest) -> bool:
    return request.path.startswith("/admin/") and admin.site.has_permission(request)


def _console_page(request: HttpRequest, template: str, title: str, status: int) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title}
    return TemplateResponse(request, template, context, status=status).render()
