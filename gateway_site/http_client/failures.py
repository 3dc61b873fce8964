"""
What a failure upstream means for the client and for the money: one BackendError each.

`is_free` is claimed only where nothing can have been generated: no connection, or a backend that itself
says that it did not do the work. A connection that broke after the request left is never free.
What upstream says in words stays here. It may hold its addresses, its internals, or our own credential.
The one exception is its message about the client's own request, cut, cleaned and shown as ProviderRejected.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway_site.api.errors import (
    BackendBusy,
    BackendError,
    BackendFailed,
    DeadlineExceeded,
    ProviderRejected,
)
from gateway_site.http_client.redaction import REMOVED, without_secrets

MAX_MESSAGE_CHARACTERS = 500
MAX_READ_CHARACTERS = 4000
MAX_RETRY_AFTER_SECONDS = 3600

_PARAM = re.compile(r"[A-Za-z0-9_.\[\]-]{1,100}")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a1-\u1fff\u2030-\uffdc\U00010000-\U0010ffff]+")


class OptionNotImplemented(BackendError):
    """The backend says that it lacks an option, where we did not know before asking."""

    status = 501
    type = "invalid_request_error"
    code = "unsupported_option"
    message = "The backend of this model does not implement an option of the request."
    is_free = True
    should_retry = False


def failure_of_status(status: int, body: bytes, *, retry_after: str | None, credential: str) -> BackendError:
    """The error for an answer that is not a success."""
    if status in (400, 413, 422):
        return rejection(body, credential=credential)
    if status in (429, 529):
        return BackendBusy(retry_after_seconds=seconds_of(retry_after) or 1)
    if status == 501:
        return OptionNotImplemented()
    if status in (408, 504, 524):
        # Someone on the way gave up waiting; whether the model behind it ran is not known.
        return DeadlineExceeded()
    if status in (401, 402, 403, 404):
        return BackendFailed(
            "The backend of this model refused the gateway: its configuration needs attention.", is_free=True
        )
    if 200 <= status < 300:
        return BackendFailed()
    failure = BackendFailed(is_free=True)
    if status == 503:
        failure.retry_after_seconds = seconds_of(retry_after)
    return failure


def failure_of_record(error: Any, *, has_output: bool, credential: str) -> BackendError:
    """The error for an event that says `error` inside a stream which began as a success."""
    if has_output:
        return BackendFailed()
    fields = error if isinstance(error, dict) else {}
    # Servers that start the stream before they validate put the status here, as llama.cpp and vLLM do.
    status = fields.get("code")
    kind = fields.get("type")
    if status in (400, 413, 422) or kind == "invalid_request_error":
        return ProviderRejected(
            shown_message(fields.get("message"), credential=credential), param=_param(fields.get("param"))
        )
    if status in (429, 529) or kind in ("rate_limit_error", "overloaded_error"):
        return BackendBusy()
    if status == 501:
        return OptionNotImplemented()
    return BackendFailed(is_free=True)


def rejection(body: bytes, *, credential: str) -> ProviderRejected:
    """The error for a response that refuses the client's own request, with its message if it has one."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ProviderRejected()
    if not isinstance(answer, dict):
        return ProviderRejected()
    error = answer.get("error")
    fields = error if isinstance(error, dict) else answer
    message = fields.get("message") or (error if isinstance(error, str) else None) or answer.get("detail")
    return ProviderRejected(shown_message(message, credential=credential), param=_param(fields.get("param")))


def shown_message(message: object, *, credential: str) -> str | None:
    """Upstream's message about the client's request, without what is not the client's to know."""
    if not isinstance(message, str):
        return None
    text = message[:MAX_READ_CHARACTERS]
    if len(message) > MAX_READ_CHARACTERS:
        text = text.rsplit(maxsplit=1)[0]  # half a credential has the shape of none
    if credential:
        text = text.replace(credential, REMOVED)
    text = without_secrets(" ".join(_UNPRINTABLE.sub(" ", text).split()))
    return text[:MAX_MESSAGE_CHARACTERS] or None


def seconds_of(retry_after: str | None) -> int | None:
    """The seconds of a Retry-After header, bounded. A date is not read: the clocks of strangers differ."""
    if retry_after is None or not retry_after.isascii() or not retry_after.strip().isdigit():
        return None
    return min(int(retry_after.strip()[:9]), MAX_RETRY_AFTER_SECONDS)


def _param(value: object) -> str | None:
    return value if isinstance(value, str) and _PARAM.fullmatch(value) else None
