"""
The Messages API's exact count of input tokens, for this backend and for others that count the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway_site.api.errors import BackendFailed
from gateway_site.http_client.client import MAX_ERROR_BODY_BYTES
from inference.backends.anthropic.request import messages_headers, messages_url
from inference.backends.base import EncodeBody, nothing_to_mark
from inference.backends.http_backend import HttpBackend


async def count_by_messages_api(backend: HttpBackend, body: Mapping[str, Any], encode: EncodeBody) -> int:
    """Input tokens of a Messages-shaped body that the caller has checked. Generates nothing."""
    request = backend.request(
        f"{messages_url(backend.base_url)}/count_tokens",
        messages_headers(backend.api_key),
        await encode(body),
        MAX_ERROR_BODY_BYTES,
    )
    answer = await backend.client.post(request, nothing_to_mark)
    try:
        counted = msgspec.json.decode(await answer.whole())
    except (msgspec.DecodeError, ValueError, RecursionError):
        counted = None
    finally:
        answer.close()
    tokens = counted.get("input_tokens") if isinstance(counted, dict) else None
    if type(tokens) is not int or tokens < 0:
        raise BackendFailed(is_free=True)
    return tokens
