"""Exceptions of REST views as errors of the API, in the envelope."""

from __future__ import annotations

import logging
import sys
from typing import Any

import psycopg
from django.core.exceptions import BadRequest, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions as drf

from gateway_site.api import envelope
from gateway_site.api.errors import (
    ApiError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from gateway_site.database.postgresql.circuit_breaker import DatabaseUnavailable

logger = logging.getLogger(__name__)


def handle(exc: Exception, context: dict[str, Any]) -> HttpResponse:
    """Answer for an exception of a view; REST framework's EXCEPTION_HANDLER."""
    view, request = context["view"], context["request"]
    if isinstance(exc, drf.MethodNotAllowed):
        exc = MethodNotAllowed(request.method, view.allowed_methods)
    return respond(to_api_error(exc), request.path)


def to_api_error(exc: BaseException) -> ApiError:
    """The error that a client sees for `exc`. What is not foreseen here is a bug, and logged as one."""
    match exc:
        case ApiError():
            return exc
        case drf.ValidationError():
            return first_field_error(exc.detail)
        case drf.NotAuthenticated() | drf.AuthenticationFailed():
            return Unauthenticated()
        case drf.PermissionDenied():
            return PermissionDenied()
        case Http404() | drf.NotFound():
            return NotFound()
        case drf.ParseError() | BadRequest() | SuspiciousOperation():
            return InvalidRequest()
        case OperationalError() | InterfaceError() | psycopg.OperationalError() | psycopg.InterfaceError():
            # Of a server that is known to be away one line says it all; there are as many as requests.
            is_known = isinstance(exc.__cause__ or exc, DatabaseUnavailable)
            logger.error("database unavailable: %s", exc, exc_info=None if is_known else exc)
            return Unavailable()
        case MemoryError():
            logger.error("short of memory", exc_info=exc)
            return Unavailable("The server is short of memory. Try again.")
        case _:
            logger.error("unexpected exception", exc_info=exc)
            return ApiError()


def first_field_error(detail: Any) -> InvalidRequest:
    """The first problem of a body, with the path of its field: `messages[0].role`."""
    path = ""
    while isinstance(detail, dict | list) and detail:
        if isinstance(detail, dict):
            name, detail = next(iter(detail.items()))
            if name != "non_field_errors":
                path += f".{name}" if path else str(name)
        elif isinstance(detail[0], dict | list):
            # A list of lists of errors: the index counts, and items without a problem are empty.
            index = next(position for position, item in enumerate(detail) if item)
            path, detail = f"{path}[{index}]", detail[index]
        else:
            detail = detail[0]
    return InvalidRequest(str(detail), param=path or None)


def respond(error: ApiError, path: str) -> HttpResponse:
    status, headers, body = envelope.render(error, path=path)
    return HttpResponse(body, status=status, headers=headers)


@csrf_exempt
def not_found(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    """Answer requests for a path that no route has."""
    return respond(NotFound("There is no such route."), request.path)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return respond(InvalidRequest(), request.path)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return respond(PermissionDenied(), request.path)


def current_api_error() -> ApiError:
    """The error that a client sees for the exception being handled."""
    exc = sys.exc_info()[1]
    return ApiError() if exc is None else to_api_error(exc)
