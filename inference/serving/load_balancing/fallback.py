"""
Whether a request that failed at one deployment falls back to the next.

Only where nothing can be owed to the first and nothing of an answer was seen: a fallback is never paid for
twice. The same deployment is not tried again (no retry): that is for the client, by the error it gets.
"""

from __future__ import annotations

from gateway_site.api.errors import BackendError, ProviderRejected, UnsupportedOption
from gateway_site.http_client.failures import OptionNotImplemented

# What the client's own request brought about: its deployment did not fail.
CAUSED_BY_CLIENT = (ProviderRejected, OptionNotImplemented, UnsupportedOption)

AttemptError = BackendError | UnsupportedOption


def is_free(error: AttemptError) -> bool:
    """Whether the backend certainly did nothing that could be owed for."""
    return isinstance(error, UnsupportedOption) or error.is_free


def is_deployments_fault(error: AttemptError) -> bool:
    """Whether the error counts against the deployment's circuit breaker."""
    return not isinstance(error, CAUSED_BY_CLIENT)


def may_fall_back(error: AttemptError, *, is_provably_free: bool, has_answer_begun: bool) -> bool:
    """Whether another deployment may be asked. What one provider rejected, another would as well."""
    return is_provably_free and not has_answer_begun and not isinstance(error, ProviderRejected)
