"""The head of an HTTP request, made into bytes once for each backend: its headers do not change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from gateway_site.http_client.connection import Origin

# `%` too: what is encoded already stays as it is.
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~"


class RequestHead(NamedTuple):
    """The bytes before a body, whom they are for, and whether the connection is to be kept alive."""

    origin: Origin
    # With a body: all but the number and the two line ends behind it. Without: all of it.
    opening: bytes
    keep_alive: bool

    def before(self, body: bytes) -> bytes:
        """The whole head of a request with this body."""
        return b"%b%d\r\n\r\n" % (self.opening, len(body))


@lru_cache(maxsize=1024)
def head_of_post(url: str, headers: tuple[tuple[str, str], ...]) -> RequestHead:
    """The head of a request with a body, for an address that `parse_base_url` let pass."""
    origin, lines = _lines("POST", url, dict(headers))
    opening = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")
    return RequestHead(origin, opening, "Connection: close" not in lines)


def head_of_get(url: str, headers: Mapping[str, str]) -> RequestHead:
    """The head of a request without a body, for an address that `parse_base_url` let pass."""
    origin, lines = _lines("GET", url, headers)
    opening = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return RequestHead(origin, opening, "Connection: close" not in lines)


def _lines(method: str, url: str, headers: Mapping[str, str]) -> tuple[Origin, list[str]]:
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    origin = Origin(is_secure, parts.hostname or "", parts.port or (443 if is_secure else 80))
    fields = {
        "Host": _host_field(origin),
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "User-Agent": "inference-gateway",
        **headers,
    }
    target = quote(parts.path or "/", safe=_SAFE_IN_PATH) + (f"?{parts.query}" if parts.query else "")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if not all(line.isprintable() for line in lines):
        raise ValueError("A header would end where it must not.")
    return origin, lines


def _host_field(origin: Origin) -> str:
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    is_usual = origin.port == (443 if origin.is_secure else 80)
    return host if is_usual else f"{host}:{origin.port}"
