"""
The cursor of a cost report, `next_page`: signed, so that it cannot be made up or carried elsewhere.

It holds a digest of the filters and not the filters, which may be two hundred ids.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.core.signing import BadSignature, Signer

from gateway_site.api.errors import InvalidRequest

MAX_LENGTH = 500
PARAM = "page"
# A cursor of another version is one that we did not write.
VERSION = 2


@dataclass(frozen=True, slots=True)
class ReportCursor:
    """The first day of the next page, and the end of the whole report, which "now" must not move."""

    day: int
    end_time: int


def write(cursor: ReportCursor, *, organization_id: uuid.UUID, filters: str) -> str:
    """Sign a cursor as text. `filters` is any text that is the same for the same filters."""
    return _signer().sign_object([VERSION, organization_id.hex, filters, cursor.day, cursor.end_time])


def read(text: str, *, organization_id: uuid.UUID, filters: str) -> ReportCursor:
    if not 1 <= len(text) <= MAX_LENGTH:
        raise InvalidRequest(f"This must have 1 to {MAX_LENGTH} characters.", param=PARAM)
    try:
        parts = _signer().unsign_object(text)
    except BadSignature:
        parts = []
    # One message for both, so that a stranger's cursor cannot be told from a made-up one.
    if parts[:2] != [VERSION, organization_id.hex]:
        raise InvalidRequest("This is not a `next_page` of this report.", param=PARAM)
    _, _, their_filters, day, end_time = parts
    if their_filters != filters:
        raise InvalidRequest(
            "This belongs to a report with other parameters. Keep them all but `limit`.", param=PARAM
        )
    return ReportCursor(day, end_time)


def _signer() -> Signer:
    # From SECRET_KEY, compared in constant time; a retired key may still be listed in SECRET_KEY_FALLBACKS.
    return Signer(salt="billing.report_cursor", sep=".")
