"""What holds for every answer, on routes that exist and on those that do not."""

from __future__ import annotations

import io
import json
import logging
import uuid
from typing import Any

import pytest
from django.db import OperationalError

from gateway_site.api.openapi import view
from gateway_site.api.request_id import RequestIdMiddleware
from gateway_site.api.request_limits import RequestLimitsMiddleware
from organization import views
from tests.harness.client import ApiClient, exchange
from tests.harness.error_checks import assert_error

LIST = "/v1/organization/admin_api_keys"


def test_both_request_id_headers_carry_one_fresh_uuid(api: ApiClient) -> None:
    first, second = (api.get(LIST, headers={"X-Request-ID": "mine", "request-id": "mine"}) for _ in "12")

    assert first.headers["x-request-id"] == first.headers["request-id"]
    assert uuid.UUID(first.headers["x-request-id"]).version == 4
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert "mine" not in str(first.raw_headers)


def test_no_answer_is_for_a_cache(api: ApiClient) -> None:
    assert api.get(LIST).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "BREW"])
@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v2/chat", "/v1/organization", f"{LIST}/", "//v1/models", "/v1/..%2Fadmin"]
)
def test_an_unknown_route_is_not_found(db: None, method: str, path: str) -> None:
    assert_error(exchange(method, path), 404, "not_found")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "POST", "OPTIONS", "TRACE", "BREW"])
def test_another_method_is_not_allowed_and_the_allowed_ones_are_named(api: ApiClient, method: str) -> None:
    answer = api.request(method, LIST, headers={"X-HTTP-Method-Override": "GET"})

    assert_error(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD"


def test_a_bug_is_a_500_that_tells_nothing(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the secret plan")

    monkeypatch.setattr(views.pagination, "page", broken)

    answer = api.get(LIST)

    assert_error(answer, 500, "internal_error")
    assert b"secret" not in answer.body


def test_a_database_that_does_not_answer_is_a_503_worth_a_retry(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(views.pagination, "page", down)

    answer = api.get(LIST)

    assert_error(answer, 503, "service_unavailable")
    assert answer.headers["retry-after"] == "1"


def test_a_failure_outside_of_any_view_is_in_the_envelope_too() -> None:
    async def broken(*args: Any) -> None:
        raise RuntimeError("boom")

    answer = exchange("GET", LIST, application=RequestIdMiddleware(RequestLimitsMiddleware(broken)))

    assert_error(answer, 500, "internal_error")


def test_token_counting_wraps_its_errors_whoever_raised_them(settings: Any, db: None) -> None:
    path = "/v1/messages/count_tokens"
    settings.GATEWAY_MAX_BODY_BYTES = 1024

    too_large = exchange("POST", path, [("Content-Length", "1025")], [b"x" * 1025])

    assert_error(too_large, 413, wrapped=True)
    assert too_large.json["type"] == "error"
    assert_error(exchange("GET", path), exchange("GET", path).status, wrapped=True)


# Django's own, those ahead of Django, a probe, the console and a file.
EVERY_KIND_OF_ROUTE = [
    LIST,
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages/count_tokens",
    "/healthz",
    "/admin/login/",
    "/static/nothing.css",
    "/nowhere",
]


@pytest.mark.parametrize("path", EVERY_KIND_OF_ROUTE)
@pytest.mark.parametrize(
    "hosts",
    [
        ["evil.example"],
        ["localhost", "localhost"],
        ["localhost,evil.example"],
        [""],
        ["a" * 300],
        ["[::1"],
        ["é"],
    ],
    ids=["foreign", "twice", "list", "empty", "long", "broken", "not ASCII"],
)
def test_a_host_that_is_not_ours_is_refused(db: None, path: str, hosts: list[str]) -> None:
    answer = exchange("POST", path, [("Host", host) for host in hosts])

    if not path.startswith(("/admin/", "/static/")):  # which say themselves what a cache may keep
        assert_error(answer, 400, "invalid_request", wrapped=path.startswith("/v1/messages"))
    assert answer.status == 400
    assert "ALLOWED_HOSTS" in answer.error["message"]


@pytest.mark.parametrize("path", EVERY_KIND_OF_ROUTE)
def test_a_host_that_was_added_is_served(db: None, settings: Any, path: str) -> None:
    assert exchange("GET", path, [("Host", "api.example.org:8443")]).status == 400

    settings.ALLOWED_HOSTS = [".example.org"]

    assert exchange("GET", path, [("Host", "api.example.org:8443")]).status != 400
    assert exchange("GET", path, [("Host", "localhost")]).status == 400


def test_a_path_prefix_from_a_header_does_not_move_the_routes(api: ApiClient) -> None:
    # daphne turns this header into the ASGI root path; the edge must not let it through.
    assert_error(api.get(f"/x{LIST}", headers={"Daphne-Root-Path": "/x"}), 404)


def test_a_probe_needs_no_key(db: None) -> None:
    alive, ready = exchange("GET", "/healthz"), exchange("GET", "/readyz")

    assert (alive.status, alive.json) == (200, {"status": "ok"})
    assert (ready.status, ready.json["status"]) == (200, "ok")
    assert set(ready.json["dependencies"].values()) == {"ok"}
    assert {"database", "schema"} <= set(ready.json["dependencies"])


def test_an_unmigrated_database_is_not_ready(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway_site.health.pending_migrations", lambda: ["organization.0009"])

    assert_error(exchange("GET", "/readyz"), 503)
    assert exchange("GET", "/healthz").status == 200


def test_a_database_that_is_gone_is_not_ready(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def down() -> list[str]:
        raise OperationalError("gone")

    monkeypatch.setattr("gateway_site.health.pending_migrations", down)

    assert_error(exchange("GET", "/readyz"), 503)


def test_keys_do_not_reach_the_log(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"no luck with {api.key} or Bearer abcdefghijklmnopqrst")

    monkeypatch.setattr(views.pagination, "page", broken)
    written = io.StringIO()
    handler = next(each for each in logging.getLogger().handlers if each.get_name() == "stderr")
    monkeypatch.setattr(handler, "stream", written)
    monkeypatch.setattr(logging.getLogger(), "level", logging.DEBUG)

    api.get(LIST)

    assert "no luck with [redacted]" in written.getvalue()
    assert api.key is not None
    assert api.key not in written.getvalue()
    assert "abcdefghijklmnopqrst" not in written.getvalue()
    for line in written.getvalue().splitlines():
        json.loads(line)


def test_the_interface_description_is_generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [ApiClient("").get("/openapi.json") for _ in range(2)]

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("the document was generated again")

    monkeypatch.setattr(view.SchemaGenerator, "get_schema", refuse)
    asked.append(ApiClient("").get("/openapi.json?version=9"))

    assert {answer.status for answer in asked} == {200}
    assert len({answer.body for answer in asked}) == 1
    assert b'"openapi": "3.1' in asked[0].body
