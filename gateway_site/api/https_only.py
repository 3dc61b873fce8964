"""The refusal of API requests that came to our proxy over plain HTTP."""

from __future__ import annotations

from typing import Any

from gateway_site.api.errors import InvalidRequest

API = "/v1/"
FORWARDED_PROTO = b"x-forwarded-proto"


class HttpsOnlyMiddleware:
    """
    ASGI layer for a gateway behind a proxy that ends TLS (GATEWAY_HTTPS).

    A redirect would make a GET of a client's POST, and hide from whoever wrote the client that the key goes
    over the network in the clear. Without the proxy's header a request comes from inside, and passes.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(API) and _is_plain(scope["headers"]):
            raise InvalidRequest("Use https://. This key was sent unencrypted, and should be replaced.")
        await self.app(scope, receive, send)


def _is_plain(headers: Any) -> bool:
    protocol = next((value for name, value in headers if name == FORWARDED_PROTO), b"https")
    # Of several proxies the first names what the client used.
    return bool(protocol.split(b",")[0].strip() != b"https")
