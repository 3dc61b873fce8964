"""The real Anthropic SDK, a release of each of its two majors, has its tokens counted by a running server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.live_server import ROOT, live_server
from tests.inference.customer import ApiCustomer

pytestmark = pytest.mark.one_database

CLIENT = "tests.e2e.sdk.count_tokens_client"
OLDER = "anthropic==1.17.0"
INSTALL_SECONDS, RUN_SECONDS = 120, 60


@pytest.fixture(scope="module")
def older_sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a 1.x release. What it needs beside itself is what the 2.x release has brought."""
    target = tmp_path_factory.mktemp("anthropic-1")
    options = ["--quiet", "--no-deps", "--target", str(target), OLDER]
    uv = shutil.which("uv")
    pip = (
        [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    )
    try:
        done = subprocess.run([*pip, *options], capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{OLDER} was not fetched in {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"{OLDER} cannot be fetched: {done.stderr[-300:]}")
    return target


def run(address: str, key: str, path: Path | None = None) -> dict[str, Any]:
    environment = {**os.environ, "GATEWAY_ADDRESS": address, "GATEWAY_KEY": key}
    environment["PYTHONPATH"] = "" if path is None else str(path)
    done = subprocess.run(
        [sys.executable, "-m", CLIENT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_customers_of_both_majors_count_the_same(
    customer: ApiCustomer, process_environment: dict[str, str], older_sdk: Path, database_vendor: str
) -> None:
    if database_vendor != "sqlite":
        pytest.skip("what a client reads is the same on both databases, and is read once")
    customer.simulate("echo")
    with live_server(process_environment) as running:
        newer = run(running.address, customer.value)
        older = run(running.address, customer.value, older_sdk)

    assert newer.pop("version").startswith("2.")
    assert older.pop("version").startswith("1.")
    for seen in (newer, older):
        check(seen)
    assert {name: newer[name] for name in ("plain", "rich")} == {
        name: older[name] for name in ("plain", "rich")
    }


def check(seen: dict[str, Any]) -> None:
    assert seen["plain"] == seen["beta"] == seen["strict"] == seen["bearer"] == 9
    assert seen["has_request_id"]
    assert seen["rich"] > 1_700
    expected = {
        "unknown": ("NotFoundError", 404, "not_found_error"),
        "beta_unknown": ("NotFoundError", 404, "not_found_error"),
        "stranger": ("AuthenticationError", 401, "authentication_error"),
        "empty": ("BadRequestError", 400, "invalid_request_error"),
    }
    for name, (kind, status, error_type) in expected.items():
        error = seen[name]
        assert (error["class"], error["status"], error["type"]) == (kind, status, error_type)
        assert error["wrapped"]
        assert error["request_id"]
        assert error["same_id"]
