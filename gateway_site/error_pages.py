"""What a person sees where a page could not be made."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from gateway_site import login
from gateway_site.api import exception_handler, request_id
from gateway_site.api.errors import Unavailable


def failed(request: HttpRequest) -> HttpResponse:
    """
    For whatever escaped a page or a middleware: the console's page or the envelope.

    A dependency that does not answer is a 503 that says so and when to come back; the rest is a 500. Neither
    page needs a session or the database.
    """
    if not request.path.startswith("/admin/"):
        return exception_handler.server_error(request)
    error = exception_handler.unhandled()
    if not isinstance(error, Unavailable):
        return login.broken(request)
    page = render_to_string("admin/unavailable.html", {"request_id": request_id.current()})
    return HttpResponse(page, status=error.status, headers=error.headers)
