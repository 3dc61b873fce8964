"""The real OpenAI SDK for Node reads the streams of a running server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.live_server import live_server
from tests.inference.customer import HELLO, ApiCustomer

pytestmark = pytest.mark.one_database

READ_SECONDS = 60
MODELS = ("echo", "words", "thinker", "endless", "refusal", "fails-cut-midway")


def test_a_customer_uses_the_sdk_for_node(
    customer: ApiCustomer, process_environment: dict[str, str], node_home: Path, database_vendor: str
) -> None:
    if database_vendor != "sqlite":
        pytest.skip("what a client reads is the same on both databases, and is read once")
    for name in MODELS:
        customer.simulate(name)
    with live_server(process_environment) as running:
        seen = run(node_home, f"{running.address}/v1", customer.value)

    assert seen["plain"]["text"] == seen["text"]["final"]["output_text"] == HELLO
    assert seen["plain"]["id"] == f"resp_{seen['plain']['requestID'].replace('-', '')}"
    assert seen["loop"]
    check_streams(seen)
    check_failures(seen)


def run(home: Path, address: str, key: str) -> dict[str, Any]:
    environment = {**os.environ, "BASE_URL": address, "API_KEY": key}
    done = subprocess.run(
        ["node", "responses.mjs"],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=READ_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def check_streams(seen: dict[str, Any]) -> None:
    """The accumulator ends with the same answer as the stream's own last event."""
    for name in ("text", "refusal", "call", "thoughts", "summary", "search", "incomplete"):
        read = seen[name]
        assert read["types"][:2] == ["response.created", "response.in_progress"]
        status = "incomplete" if name == "incomplete" else "completed"
        assert read["types"][-1] == f"response.{status}"
        assert read["final"]["status"] == status
        assert words(read["final"]) == words(read["terminal"])
    assert "response.refusal.delta" in seen["refusal"]["types"]
    assert "response.function_call_arguments.delta" in seen["call"]["types"]
    assert "response.reasoning_text.delta" in seen["thoughts"]["types"]
    assert "response.reasoning_summary_text.delta" in seen["summary"]["types"]
    assert "response.output_text.annotation.added" in seen["search"]["types"]


def check_failures(seen: dict[str, Any]) -> None:
    cut, refused = seen["cut"], seen["refused"]
    assert cut["isAPIError"]
    assert cut["words"] > 0
    assert cut["code"] == "backend_failed"
    assert (refused["name"], refused["status"], refused["param"]) == ("BadRequestError", 400, "store")
    assert refused["requestID"]


def words(response: dict[str, Any]) -> list[Any]:
    texts = []
    for item in response["output"]:
        parts = [*item.get("content", []), *item.get("summary", [])]
        texts += [part.get("text", part.get("refusal")) for part in parts]
        texts.append(item.get("name"))
    return texts
