"""
Every error that a client can see.

* ApiError                      500
  x InvalidRequest              400
    + ContextLengthExceeded     400
  x Unauthenticated             401
  x InsufficientCredit          402
  x SpendingCapExceeded         402
  x PermissionDenied            403
    + WrongKeyKind              403
    + ProjectArchivedForUse     403
  x PolicyViolation             403
  x NotFound                    404
    + ModelNotFound             404
    + PolicyNotFound            404
  x MethodNotAllowed            405
  x Conflict                    409
    + IdempotencyMismatch       409
    + CreationInProgress        409, worth a retry
    + ProjectArchived           409
    + StaleRevision             409
    + PolicyStateConflict       409
  x BodyTooLarge                413
  x UnsupportedMediaType        415
  x RateLimited                 429
    + ConcurrencyExceeded       429
  x UnsupportedOption           501
  x Unavailable                 503
    + ShuttingDown              503
    + ModelNotConfigured        503, not worth a retry
    + JudgeUnavailable          503
  x BackendError                502
    + ProviderRejected          422
    + BackendBusy               429
    + BackendUnreachable        502, nothing was sent
    + BackendFailed             502
    + DeadlineExceeded          504

`protocol_errors` has those of requests that are refused before they reach a route.

The rest of the code raises these and nothing else; `exception_handler` and `request_limits` turn
them into responses through `envelope.render`, and nothing else does.
"""

from __future__ import annotations


class ApiError(Exception):
    status = 500
    # Unspecified: error-codes. The spec names the type `policy_error` and no other, and no code.
    # The types are the words that the Messages SDK knows, because token counting shares the
    # envelope; both lists live in this file alone.
    type = "api_error"
    code = "internal_error"
    message = "The gateway failed unexpectedly."
    # The SDKs repeat 409 and every 5xx on their own. False tells them that it cannot help.
    should_retry: bool | None = None
    retry_after_seconds: int | None = None

    def __init__(self, message: str | None = None, *, param: str | None = None) -> None:
        self.message = message or self.message
        self.param = param
        super().__init__(self.message)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that belong to this error, in addition to those of every response."""
        headers = {}
        if self.retry_after_seconds is not None:
            headers["Retry-After"] = str(self.retry_after_seconds)
        if self.should_retry is not None:
            headers["X-Should-Retry"] = "true" if self.should_retry else "false"
        return headers


class InvalidRequest(ApiError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_request"
    message = "The request is not valid."


class ContextLengthExceeded(InvalidRequest):
    """The prompt is too long; clients know by this code to shorten the conversation."""

    code = "context_length_exceeded"

    def __init__(self, *, tokens: int, limit: int) -> None:
        super().__init__(
            f"The request is about {tokens} tokens long; this model reads and writes {limit} together.",
            param="messages",
        )


class Unauthenticated(ApiError):
    """One message for every bad credential: a guesser cannot tell an unknown key from a revoked one."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"
    message = "A valid API key is required: send exactly one, as `Authorization: Bearer <key>`."

    @property
    def headers(self) -> dict[str, str]:
        return {**super().headers, "WWW-Authenticate": "Bearer"}


class InsufficientCredit(ApiError):
    status = 402
    type = "billing_error"
    code = "insufficient_credit"

    def __init__(self, *, needed: str, left: str) -> None:
        super().__init__(
            f"The organization's credit cannot cover this request: it needs up to ${needed}, ${left} is left."
        )


class SpendingCapExceeded(ApiError):
    """A spending cap is reached; `code` names it: `project_month_cap_exceeded`."""

    status = 402
    type = "billing_error"
    code = "spending_cap_exceeded"

    def __init__(self, *, scope: str, period: str, limit: str, needed: str, left: str) -> None:
        during = "in total" if period == "total" else f"a {period}"
        super().__init__(
            f"The spending limit of the {scope}, ${limit} {during}, cannot cover this request:"
            f" it needs up to ${needed}, ${left} is left."
        )
        self.code = f"{scope}_{period}_cap_exceeded"


class PermissionDenied(ApiError):
    status = 403
    type = "permission_error"
    code = "permission_denied"
    message = "This key may not do that."


class WrongKeyKind(PermissionDenied):
    code = "wrong_key_kind"


class ProjectArchivedForUse(PermissionDenied):
    """The key's project was archived: its keys admit no more inference."""

    code = "project_archived"
    message = "The project of this key is archived."


class PolicyViolation(ApiError):
    """An enforcing policy matched. The client sees its name, and neither its rule nor the judge's answer."""

    status = 403
    type = "policy_error"
    code = "policy_violation"

    def __init__(self, *, policy_id: str, name: str, direction: str) -> None:
        super().__init__(f"The {direction} is not allowed by the policy {name} ({policy_id}).")


class NotFound(ApiError):
    status = 404
    type = "not_found_error"
    code = "not_found"
    message = "There is nothing here under that name in your organization."


class ModelNotFound(NotFound):
    """One answer for a model that is not there and one that is switched off."""

    code = "model_not_found"
    message = "There is no such model."

    def __init__(self) -> None:
        super().__init__(param="model")


class PolicyNotFound(NotFound):
    """One answer for an id that is unknown, a stranger's, never published or paused."""

    code = "policy_not_found"
    message = "There is no published policy with this id in your organization."


class MethodNotAllowed(ApiError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(f"{method} is not allowed here.")
        self.allowed = allowed

    @property
    def headers(self) -> dict[str, str]:
        return {**super().headers, "Allow": ", ".join(self.allowed)}


class Conflict(ApiError):
    status = 409
    type = "conflict_error"
    code = "conflict"
    message = "The request conflicts with the current state."
    should_retry = False


class IdempotencyMismatch(Conflict):
    code = "idempotency_mismatch"
    message = "This Idempotency-Key was used for a different request."

    def __init__(self) -> None:
        super().__init__(param="Idempotency-Key")


class CreationInProgress(Conflict):
    code = "creation_in_progress"
    message = "A request with this Idempotency-Key is still running. Try again."
    should_retry = True
    retry_after_seconds = 1


class ProjectArchived(Conflict):
    code = "project_archived"
    message = "The project is archived."


class StaleRevision(Conflict):
    """Somebody else changed the resource since the caller read it."""

    code = "stale_revision"

    def __init__(self, current: int) -> None:
        super().__init__(f"The policy has changed since; its revision is {current} now.", param="revision")


class PolicyStateConflict(Conflict):
    """The policy is not in a state in which this can be done to it."""

    code = "policy_state"


class BodyTooLarge(ApiError):
    status = 413
    type = "request_too_large"
    code = "request_too_large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The body is larger than {limit_bytes} bytes.")


class UnsupportedMediaType(ApiError):
    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"
    message = "The body must be sent as application/json, in UTF-8 and not compressed."


class RateLimited(ApiError):
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    message = "Too many requests."

    def __init__(self, message: str | None = None, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = max(1, retry_after_seconds)


class ConcurrencyExceeded(RateLimited):
    code = "concurrency_exceeded"


class Unavailable(ApiError):
    status = 503
    type = "overloaded_error"
    code = "service_unavailable"
    message = "A required service is unavailable. Try again."
    retry_after_seconds: int | None = 1


class ModelNotConfigured(Unavailable):
    """A price or a deployment is missing. A model without a price is never served for nothing."""

    code = "model_not_configured"
    message = "This model is not completely configured."
    retry_after_seconds = None
    should_retry = False


class ShuttingDown(Unavailable):
    """This process is shutting down, and could not wait for the request any longer."""

    code = "shutting_down"
    message = "The gateway stopped before the request was done."


class JudgeUnavailable(Unavailable):
    """An enforcing policy could not be judged, and what was not judged does not pass."""

    type = "policy_error"
    code = "policy_not_judged"

    def __init__(self, *, policy_id: str, name: str, direction: str) -> None:
        super().__init__(f"The {direction} could not be judged by the policy {name} ({policy_id}).")


class UnsupportedOption(ApiError):
    """The backend of the model does not implement what the field at `param` asks for."""

    status = 501
    type = "invalid_request_error"
    code = "unsupported_option"
    should_retry = False

    def __init__(self, *, param: str) -> None:
        super().__init__(f"The backend of this model does not implement `{param}`.", param=param)


class BackendError(ApiError):
    """
    The backend did not answer as it should.

    `is_free` says that it is known to have generated nothing, so that nothing is owed and another
    backend may be tried. Where that is not known the client is told not to repeat by itself: each
    repetition may be a paid run.
    """

    status = 502
    code = "backend_failed"
    message = "The backend of this model failed."
    is_free = False

    def __init__(
        self, message: str | None = None, *, param: str | None = None, is_free: bool | None = None
    ) -> None:
        super().__init__(message, param=param)
        if is_free is not None:
            self.is_free = is_free
        if not self.is_free:
            self.should_retry = False


class ProviderRejected(BackendError):
    """The one error that repeats what the backend answered: it is about the client's own request."""

    status = 422
    type = "invalid_request_error"
    code = "provider_rejected"
    message = "The provider of this model did not accept the request."
    is_free = True


class BackendBusy(BackendError):
    status = 429
    type = "rate_limit_error"
    code = "backend_busy"
    message = "The backend of this model is busy."
    is_free = True

    def __init__(self, *, retry_after_seconds: int = 1) -> None:
        super().__init__()
        self.retry_after_seconds = max(1, retry_after_seconds)


class BackendUnreachable(BackendError):
    """The backend cannot be connected to: not one byte of the request left this process."""

    code = "backend_unreachable"
    message = "The backend of this model cannot be reached."
    is_free = True


class BackendFailed(BackendError):
    """The backend answered with a failure, broke off, or sent what cannot be understood."""


class DeadlineExceeded(BackendError):
    status = 504
    type = "timeout_error"
    code = "deadline_exceeded"
    message = "The backend of this model did not answer in time."
