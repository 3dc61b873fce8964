"""A customer that asks for responses."""

from __future__ import annotations

import json
from typing import Any

from inference.dialects.responses import dialect
from tests.harness.client import Answer, exchange
from tests.inference.customer import HELLO, ApiCustomer, closing_application


def ask(
    customer: ApiCustomer,
    model: str,
    input: Any = HELLO,
    *,
    headers: dict[str, str] | None = None,
    key: str | None = None,
    path: str = dialect.PATH,
    **fields: Any,
) -> Answer:
    raw = json.dumps({"model": model, "input": input, **fields}).encode()
    sent = {
        "Authorization": f"Bearer {key or customer.value}",
        "Content-Type": "application/json",
        "Content-Length": str(len(raw)),
        **(headers or {}),
    }
    return exchange("POST", path, list(sent.items()), [raw], application=closing_application)


def result_of(answer: Answer) -> dict[str, Any]:
    """The response, streamed or not."""
    assert answer.status == 200, answer.body
    if answer.headers["content-type"] == "application/json":
        return answer.json  # type: ignore[no-any-return]
    last = answer.body.removesuffix(b"\n\n").split(b"\n\n")[-1]
    return json.loads(last.partition(b"\ndata: ")[2])["response"]  # type: ignore[no-any-return]


def text_of(answer: Answer) -> str:
    messages = [item for item in result_of(answer)["output"] if item["type"] == "message"]
    return "".join(part["text"] for message in messages for part in message["content"])
