"""What holds for every error, whoever raised it."""

from __future__ import annotations

import uuid

from tests.harness.client import Answer


def assert_error(
    answer: Answer, status: int, code: str | None = None, *, param: str | None = None, wrapped: bool = False
) -> None:
    """The answer is this error, in the envelope, with a fresh request id and nothing for a cache."""
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json
    assert set(body) == ({"type", "error"} if wrapped else {"error"})
    error = body["error"]
    assert set(error) == {"code", "message", "type", "param", "request_id", "doc_url"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert error["type"]
    identifier = answer.headers["x-request-id"]
    assert str(uuid.UUID(identifier)) == identifier == answer.headers["request-id"] == error["request_id"]
    if code is not None:
        assert error["code"] == code
    if param is not None:
        assert error["param"] == param
