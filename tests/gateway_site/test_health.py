"""What /readyz says of each thing that the gateway stands on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from gateway_site import health
from tests.harness.client import exchange
from tests.harness.error_checks import assert_error


def test_a_full_disk_is_not_ready_where_the_database_is_on_it(db: None, settings: Any) -> None:
    settings.GATEWAY_MIN_FREE_BYTES = 1 << 62
    settings.GATEWAY_DATA_DIR.mkdir(exist_ok=True)

    answer = exchange("GET", "/readyz")

    if connection.vendor == "sqlite":
        assert_error(answer, 503)
        assert b"disk full" in answer.body
    else:
        assert (answer.status, answer.json["status"]) == (200, "degraded")
        assert answer.json["dependencies"]["disk"] == "full"


def test_a_directory_that_nothing_needs_is_not_missed(db: None, settings: Any, tmp_path: Any) -> None:
    settings.GATEWAY_DATA_DIR = tmp_path / "none"

    answer = exchange("GET", "/readyz")

    assert (answer.status, answer.json["status"]) == (200, "ok")


def test_readyz_is_200_and_degraded_while_redis_is_unavailable(db: None, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": settings.REDIS_URL}}

    answer = exchange("GET", "/readyz")

    assert (answer.status, answer.json["status"]) == (200, "degraded")
    assert answer.json["dependencies"]["cache"] == "unreachable"
    assert answer.json["dependencies"]["database"] == "ok"


def test_a_flood_of_probes_checks_the_dependencies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, may_end = [], threading.Event()

    def look() -> list[health.Dependency]:
        looked.append(threading.get_ident())
        assert may_end.wait(10)
        return [health.Dependency("database", "ok")]

    monkeypatch.setattr(health, "dependencies", look)
    readiness = health.Readiness()
    with ThreadPoolExecutor(20) as threads:
        asked = [threads.submit(readiness.current) for _ in range(100)]
        may_end.set()
        found = [each.result() for each in asked]

    assert len(looked) == 1
    assert all(each == found[0] for each in found)


def test_a_directory_that_is_gone_is_reported_as_missing(tmp_path: Any) -> None:
    assert health.disk_condition(tmp_path) == "ok"
    assert health.disk_condition(tmp_path / "gone") == "missing"
