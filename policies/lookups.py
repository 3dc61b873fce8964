"""Finding a policy by the id that an operator types."""

from __future__ import annotations

from gateway_site.api.errors import NotFound
from gateway_site.api.identifiers import uuid_or_none
from policies.models import Policy


def find_policy(text: str) -> Policy:
    """The policy with this id, of whatever organization: for operators alone."""
    identifier = uuid_or_none(text)
    rows = Policy.objects.select_related("organization", "current_version")
    found = rows.filter(pk=identifier).first() if identifier else None
    if found is None:
        raise NotFound(f"There is no policy with the id {text!r}.")
    return found
