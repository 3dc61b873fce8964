"""POST /v1/messages/count_tokens through the whole application."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from billing.models import Reservation
from gateway_site.quickstart import llama_server
from gateway_site.quickstart import local_model as keeper
from inference.activity.writer import writer
from inference.backends.anthropic.backend import AnthropicBackend
from inference.models import Activity
from inference.serving import token_counting
from inference.serving.token_counting import count_texts
from inference.tokenizer import CountTokens, counter
from organization import services as organization_services
from tests.factories import SOMEONE, make_admin_key, make_project_key
from tests.harness.client import exchange
from tests.harness.error_checks import assert_error
from tests.harness.live_server import free_port
from tests.inference.backends.upstreams.faulty.server import upstream_in_thread
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, ApiCustomer, closing_application
from tests.inference.dialects.messages.customer import AROUND_ONE, count, tokens_of

PATH = "/v1/messages/count_tokens"


def test_it_works(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    answer = count(customer, content="hello there")

    assert tokens_of(answer) == counter("o200k_base")("hello there") + AROUND_ONE
    assert answer.headers["request-id"] == answer.headers["x-request-id"]


def test_it_costs_nothing_and_leaves_nothing(poor: ApiCustomer) -> None:
    poor.simulate("echo")

    assert tokens_of(count(poor)) > 0

    writer.flush()
    assert not Reservation.objects.exists()
    assert not Activity.objects.exists()


def test_everything_that_a_model_reads_is_counted(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    plain = tokens_of(count(customer))
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    more: list[dict[str, Any]] = [
        {"system": "Be brief."},
        {"tools": [{"name": "f", "description": "words", "input_schema": {"type": "object"}}]},
        {"content": [{"type": "text", "text": "hello there"}, {"type": "image", "source": image}]},
        {"content": [{"type": "document", "source": {"type": "text", "data": "hello there and more"}}]},
        {"content": [{"type": "tool_result", "tool_use_id": "t", "content": "hello there and more"}]},
    ]

    for fields in more:
        assert tokens_of(count(customer, **fields)) > plain, fields


def test_a_backend_that_can_count_is_asked(customer: ApiCustomer) -> None:
    with upstream_in_thread() as upstream:
        backend = make_backend("claude", "anthropic", base_url=upstream.url, credential="sk-ant-1")
        deploy(make_model("claude", **COLUMNS), backend, "ok")
        search = {"type": "web_search_2025_03_05", "name": "web_search"}

        answer = count(customer, "claude", tools=[search], mcp_servers=[{"url": "https://e.com"}])

        assert tokens_of(answer) == 7  # what it says for one message
        request = upstream.last
    assert request.path == PATH
    assert request.headers["x-api-key"] == "sk-ant-1"
    assert request.body == {
        "model": "ok",
        "messages": [{"role": "user", "content": "hello there"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    }


@pytest.mark.parametrize("fault", ["500_html", "429", "401", "501", "503", "529"])
def test_where_a_backend_fails_to_count_the_gateway_counts(customer: ApiCustomer, fault: str) -> None:
    with upstream_in_thread() as upstream:
        backend = make_backend("claude", "anthropic", base_url=upstream.url)
        deploy(make_model("claude", **COLUMNS), backend, fault)

        assert tokens_of(count(customer, "claude")) == counter("o200k_base")("hello there") + AROUND_ONE


def test_where_a_backend_is_unreachable_the_gateway_counts(customer: ApiCustomer) -> None:
    backend = make_backend("claude", "anthropic", base_url="http://127.0.0.1:9")
    deploy(make_model("claude", **COLUMNS), backend)

    assert tokens_of(count(customer, "claude")) > AROUND_ONE


def test_where_a_backend_takes_too_long_the_gateway_counts(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forever(self: Any, body: Any, encode: Any) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(AnthropicBackend, "count_tokens", forever)
    monkeypatch.setattr(token_counting, "BACKEND_SECONDS", 0.05)
    deploy(
        make_model("claude", **COLUMNS), make_backend("claude", "anthropic", base_url="http://127.0.0.1:9")
    )

    assert tokens_of(count(customer, "claude")) > AROUND_ONE


def test_what_the_backend_does_not_accept_is_the_clients_to_know(customer: ApiCustomer) -> None:
    with upstream_in_thread() as upstream:
        deploy(
            make_model("claude", **COLUMNS), make_backend("claude", "anthropic", base_url=upstream.url), "400"
        )

        assert_error(count(customer, "claude"), 422, "provider_rejected", wrapped=True)


def test_without_a_vocabulary_it_is_an_estimate(customer: ApiCustomer) -> None:
    customer.simulate("echo", tokenizer="")

    assert tokens_of(count(customer)) == counter("o200k_base")("hello there") + AROUND_ONE


@pytest.mark.slow
@pytest.mark.skipif(llama_server.missing_part() is not None, reason="the `local` extra is not installed")
def test_llama_cpp_counts_as_it_will_read(customer: ApiCustomer) -> None:
    with keeper.running(preferred_port=free_port()) as local:
        backend = make_backend("local", "openai", base_url=local.base_url, options={"server": "llama.cpp"})
        deploy(make_model("small", **COLUMNS), backend, llama_server.MODEL_ID)

        counted = tokens_of(count(customer, "small", content="hello there"))
        answered = customer.ask("small", "hello there", max_tokens=1)

    assert counted == answered.json["usage"]["prompt_tokens"]


# --- who, and how -------------------------------------------------------------------------------------


def test_both_credential_headers_and_every_version_are_accepted(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    for credential in ({"X-Api-Key": customer.value}, {"Authorization": f"Bearer {customer.value}"}):
        for version in ({}, {"anthropic-version": "2023-06-01"}, {"anthropic-version": "2026-10-21"}):
            assert count(customer, headers={**credential, **version}).status == 200


def test_a_key_that_may_not_count_is_refused(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    reader = make_project_key(customer.project, permissions=["models:read"])
    admin = make_admin_key(customer.project.organization)
    refusals = [("gwk_x", 401, "invalid_api_key"), (reader.value, 403, "permission_denied")]

    for value, status, code in [*refusals, (admin.value, 403, "wrong_key_kind")]:
        answer = count(customer, headers={"Authorization": f"Bearer {value}"})
        assert_error(answer, status, code, wrapped=True)


@pytest.mark.parametrize("end", ["revoked", "archived"])
def test_a_key_that_has_ended_counts_nothing_from_then_on(customer: ApiCustomer, end: str) -> None:
    customer.simulate("echo")
    assert count(customer).status == 200

    if end == "revoked":
        organization_services.revoke_key(key=customer.key, actor=SOMEONE)
        assert_error(count(customer), 401, "invalid_api_key", wrapped=True)
    else:
        organization_services.archive_project(project=customer.project, actor=SOMEONE)
        assert_error(count(customer), 403, "project_archived", wrapped=True)


def test_the_rate_limit_of_a_key_is_kept(customer: ApiCustomer, settings: Any) -> None:
    customer.simulate("echo")
    settings.GATEWAY_REQUESTS_PER_MINUTE = 2

    answers = [count(customer) for _ in range(5)]  # five, in case the minute ends in between

    limited = [answer for answer in answers if answer.status != 200]
    assert_error(limited[0], 429, "rate_limit_exceeded", wrapped=True)


def test_a_model_that_does_not_exist_is_not_found(customer: ApiCustomer) -> None:
    assert_error(count(customer, "nothing"), 404, "model_not_found", param="model", wrapped=True)


def test_the_beta_flags_have_a_bound(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    assert count(customer, headers={"anthropic-beta": "b" * 512}).status == 200
    answer = count(customer, headers={"anthropic-beta": "b" * 513})

    assert_error(answer, 400, "invalid_request", param="anthropic-beta", wrapped=True)


def test_a_session_has_its_bounds_here_too(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    assert count(customer, headers={"X-Service-Session-ID": "s" * 512}).status == 200
    answer = count(customer, headers={"X-Service-Session-ID": "s" * 513})

    assert_error(answer, 400, "invalid_request", param="X-Service-Session-ID", wrapped=True)


def test_a_query_is_tolerated(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    assert count(customer, path=f"{PATH}?beta=true").status == 200


def test_another_media_type_and_another_method_are_refused(customer: ApiCustomer) -> None:
    sent = [("Authorization", f"Bearer {customer.value}"), ("Content-Type", "text/plain")]

    assert_error(exchange("POST", PATH, sent, [b"{}"]), 415, "unsupported_media_type", wrapped=True)
    assert_error(exchange("GET", PATH, sent), 405, "method_not_allowed", wrapped=True)
    assert_error(exchange("POST", f"/{PATH}", sent, [b"{}"]), 404, "not_found")


def test_an_unknown_field_and_a_body_over_the_limit_are_refused(customer: ApiCustomer, settings: Any) -> None:
    assert_error(count(customer, extra=1), 400, "invalid_request", param="extra", wrapped=True)
    settings.GATEWAY_MAX_BODY_BYTES = 1024
    assert_error(count(customer, content="x" * 2000), 413, "request_too_large", wrapped=True)


def test_a_megabyte_is_counted_off_the_event_loop(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off the loop, and in pieces short enough for the loop's thread to have its turn between them."""
    customer.simulate("echo", context_length=1_000_000)
    count(customer)  # the vocabulary is loaded
    threads: dict[str, int] = {}
    longest = 0

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        threads["loop"] = threading.get_ident()
        await closing_application(scope, receive, send)

    def counted(counter: CountTokens, texts: Iterable[str]) -> int:
        def watched_counter(piece: str) -> int:
            nonlocal longest
            longest = max(longest, len(piece))
            return counter(piece)

        threads["count"] = threading.get_ident()
        return count_texts(watched_counter, texts)

    monkeypatch.setattr(token_counting, "count_texts", counted)
    body = b'{"model": "echo", "messages": [{"role": "user", "content": "%s"}]}'
    body %= b"Several words of a long text, " * 35_000
    sent = [("Authorization", f"Bearer {customer.value}"), ("Content-Type", "application/json")]
    began = time.process_time()
    answer = exchange("POST", PATH, sent, [body], application=watched)

    assert time.process_time() - began < 2  # it takes a fifth of a second
    assert len(body) > 1_000_000
    assert tokens_of(answer) == 7 * 35_000 + 1 + AROUND_ONE
    assert threads["count"] != threads["loop"]
    assert longest < 10_000
