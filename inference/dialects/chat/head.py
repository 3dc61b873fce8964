"""What every chunk and the whole object of one answer share."""

from __future__ import annotations

from msgspec import Struct

from inference.dialects.chat.response import ChatUsage, UrlCitation, UrlCitationAnnotation
from inference.events import Annotation, Usage

# Inside JSON these are plain characters. But many clients cut lines where Python's `splitlines` does,
# and would cut a record in two.
_LINE_BREAKS = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"), (b"\xc2\x85", rb"\u0085"))


class Head(Struct, frozen=True, kw_only=True):
    id: str
    created: int
    model: str
    # Streams only: whether the client asked for the usage record. JSON always has it.
    include_usage: bool = False
    show_reasoning: bool = True
    service_tier: str | None = None
    system_fingerprint: str | None = None


def escaped(encoded: bytes) -> bytes:
    """JSON that no reader of lines will cut."""
    if not encoded.isascii():
        for raw, escape in _LINE_BREAKS:
            encoded = encoded.replace(raw, escape)
    return encoded


def usage_of(usage: Usage) -> ChatUsage:
    prompt = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens}
    completion = {"reasoning_tokens": usage.reasoning_tokens}
    return ChatUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=_reported(prompt),
        completion_tokens_details=_reported(completion),
    )


def citation_of(event: Annotation) -> UrlCitationAnnotation:
    return UrlCitationAnnotation(
        url_citation=UrlCitation(
            url=event.url, title=event.title, start_index=event.start, end_index=event.end
        )
    )


def _reported(details: dict[str, int | None]) -> dict[str, int] | None:
    return {name: count for name, count in details.items() if count is not None} or None
