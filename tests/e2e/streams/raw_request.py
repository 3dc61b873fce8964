"""A streamed request as the bytes that a client writes to its socket."""

from __future__ import annotations

import json
from typing import Any

from tests.inference.customer import ApiCustomer, question


def request_bytes(customer: ApiCustomer, model: str, **fields: Any) -> bytes:
    body = json.dumps(question(model, stream=True, **fields)).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.value}\r\n"
    )
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
