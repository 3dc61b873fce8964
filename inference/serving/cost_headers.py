"""The headers by which a caller learns what its own request cost: an extension, and only where asked for."""

from __future__ import annotations

from django.conf import settings

from gateway_site.api.errors import InvalidRequest

INCLUDE_COST_HEADER = "X-Include-Cost"
COST_HEADER = "X-Cost-Usd"


def includes_cost(values: dict[str, list[str]]) -> bool:
    """Whether these headers, by name, ask for the cost. Without extensions nobody reads them."""
    sent = values[INCLUDE_COST_HEADER]
    if not sent or not settings.GATEWAY_EXTENSIONS:
        return False
    if len(sent) > 1:
        raise InvalidRequest("This header was sent more than once.", param=INCLUDE_COST_HEADER)
    value = sent[0].lower()
    if value not in ("true", "false"):
        raise InvalidRequest(f"{INCLUDE_COST_HEADER} is true or false.", param=INCLUDE_COST_HEADER)
    return value == "true"
