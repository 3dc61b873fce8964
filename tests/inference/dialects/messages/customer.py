"""A customer that has its tokens counted."""

from __future__ import annotations

import json
from typing import Any

from gateway_site.api.envelope import TOKEN_COUNT_PATH
from tests.harness.client import Answer, exchange
from tests.inference.customer import ApiCustomer, closing_application

# What stands around one message of the user in what a model reads.
AROUND_ONE = 7


def count(
    customer: ApiCustomer,
    model: str = "echo",
    content: Any = "hello there",
    *,
    headers: dict[str, str] | None = None,
    path: str = TOKEN_COUNT_PATH,
    **fields: Any,
) -> Answer:
    raw = json.dumps({"model": model, "messages": [{"role": "user", "content": content}], **fields}).encode()
    sent = {"Content-Type": "application/json", "Content-Length": str(len(raw)), **(headers or {})}
    if not {"authorization", "x-api-key"} & {name.lower() for name in sent}:
        sent["Authorization"] = f"Bearer {customer.value}"
    return exchange("POST", path, list(sent.items()), [raw], application=closing_application)


def tokens_of(answer: Answer) -> int:
    assert answer.status == 200, answer.body
    assert set(answer.json) == {"input_tokens"}
    return int(answer.json["input_tokens"])
