"""What schemathesis asks of every answer beside what the document says: its SCHEMATHESIS_HOOKS."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import schemathesis

ENVELOPE = {"code", "message", "type", "param", "request_id", "doc_url"}
PUBLIC = ("/healthz", "/readyz")
LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


@schemathesis.check
def errors_are_in_the_envelope(ctx: Any, response: Any, case: Any) -> None:
    """Also those that no operation documents, such as 405."""
    identifier = response.headers["x-request-id"][0]
    assert str(uuid.UUID(identifier)) == identifier == response.headers["request-id"][0]
    if response.status_code < 400 or case.method == "HEAD":
        return
    body = json.loads(response.content)
    assert set(body["error"]) == ENVELOPE, body
    assert body["error"]["request_id"] == identifier
    assert body["error"]["message"]
    assert b"Traceback" not in response.content


@schemathesis.check
def streams_are_whole(ctx: Any, response: Any, case: Any) -> None:
    """Every record is JSON, and the last one says that it is the last."""
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return
    records = [
        line.removeprefix(b"data: ") for line in response.content.split(b"\n") if line.startswith(b"data: ")
    ]
    payloads = [record if record == b"[DONE]" else json.loads(record) for record in records]
    last = payloads[-1]
    is_error = isinstance(last, dict) and "error" in last
    assert last == b"[DONE]" or is_error or last["type"] in LAST_EVENTS, last


@schemathesis.check
def strangers_are_refused(ctx: Any, response: Any, case: Any) -> None:
    """For the run without a good key: whatever is sent, nothing is done."""
    if "FUZZ_WITHOUT_KEY" in os.environ and case.operation.path not in PUBLIC:
        assert 400 <= response.status_code < 500, response.status_code


@schemathesis.check
def answers_are_counted(ctx: Any, response: Any, case: Any) -> None:
    """For the test, which wants to know what was tried."""
    kind = response.headers.get("content-type", [""])[0].partition(";")[0]
    with Path(os.environ["FUZZ_SEEN"]).open("a") as seen:
        seen.write(json.dumps([case.operation.label, response.status_code, kind]) + "\n")
