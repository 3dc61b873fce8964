"""POST /v1/chat/completions through the whole application, on the simulator."""

from __future__ import annotations

from typing import Any

import pytest

from billing import services
from billing.models import Reservation
from billing.prices.bill import charge
from billing.prices.hold import hold_amount
from billing.prices.price import Quantities
from inference.tokenizer import AROUND_A_PROMPT, AROUND_A_TEXT, AROUND_A_TURN, counter
from organization import services as organization_services
from tests.factories import SOMEONE, make_admin_key, make_project_key
from tests.harness.client import exchange
from tests.harness.error_checks import assert_error
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import HELLO, ApiCustomer, question, records, text_of

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
PATH = "/v1/chat/completions"


@BOTH
def test_it_works(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("echo")

    answer = customer.ask("echo", stream=stream)

    assert answer.status == 200
    assert text_of(answer) == HELLO
    assert customer.reservation().state == Reservation.State.SETTLED


def test_the_answer_is_what_the_interface_describes(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    answer = customer.ask("echo")

    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"]) == ("chat.completion", "echo")
    assert body["choices"][0]["finish_reason"] == "stop"
    used = counter("o200k_base")(HELLO)
    assert body["usage"]["prompt_tokens"] == used
    assert body["usage"]["total_tokens"] == used + body["usage"]["completion_tokens"]


def test_the_stream_is_what_clients_read(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    answer = customer.ask("echo", stream=True, stream_options={"include_usage": True})

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-accel-buffering"] == "no"
    *chunks, usage, done = records(answer.body)
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(chunks) - 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1


@BOTH
def test_the_hold_and_the_charge_follow_the_prices(customer: ApiCustomer, stream: bool) -> None:
    version = customer.simulate("echo", request_price_picousd=7_000).price_version
    assert version is not None

    customer.ask("echo", stream=stream, max_tokens=50, n=3)

    tokens = counter("o200k_base")(HELLO)
    row = customer.reservation()
    assert row.choices == 3
    assert row.basis == Reservation.Basis.USAGE
    upper = tokens + AROUND_A_TEXT + AROUND_A_TURN + AROUND_A_PROMPT
    bounds = Quantities(prompt=upper, completion=3 * 50)
    assert row.bound_quantities == bounds
    assert row.reserved_nanousd == hold_amount(version.card, bounds)
    completion_tokens = 3 * sum(map(counter("o200k_base"), ["hello", " there", " my", " friend"]))
    used = Quantities(prompt=tokens, completion=completion_tokens)
    assert row.used_quantities == used
    assert row.charged_nanousd == charge(version.card, used)
    assert (row.price_version, row.ended_by) == (version, "complete")


def test_a_bound_over_the_models_own_is_lowered(customer: ApiCustomer) -> None:
    customer.simulate("endless", max_output_length=20)

    answer = customer.ask("endless", max_tokens=500)

    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert answer.json["usage"]["completion_tokens"] <= 20


def test_a_bound_is_lowered_to_what_the_context_has_left(customer: ApiCustomer) -> None:
    customer.simulate("endless", context_length=40, max_output_length=40)

    answer = customer.ask("endless")

    assert answer.json["usage"]["total_tokens"] <= 40


@BOTH
def test_a_prompt_longer_than_the_context_is_refused_by_the_name_that_clients_know(
    customer: ApiCustomer, stream: bool
) -> None:
    customer.simulate("echo", context_length=20, max_output_length=20)

    answer = customer.ask("echo", "word " * 50, stream=stream)

    assert_error(answer, 400, "context_length_exceeded", param="messages")
    assert not Reservation.objects.exists()


@BOTH
def test_without_credit_it_is_refused_before_the_first_byte(poor: ApiCustomer, stream: bool) -> None:
    poor.simulate("echo")

    answer = poor.ask("echo", stream=stream)

    assert_error(answer, 402, "insufficient_credit")


def test_a_cap_that_cannot_cover_it_is_a_402_too(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    services.set_spending_limit(scope=customer.key, period="day", limit_nanousd=1, actor=SOMEONE)

    assert_error(customer.ask("echo"), 402, "key_day_cap_exceeded")


def test_a_free_model_needs_no_credit(poor: ApiCustomer) -> None:
    poor.simulate("echo", prompt_price_picousd=0, completion_price_picousd=0)

    assert poor.ask("echo").status == 200
    assert poor.reservation().charged_nanousd == 0


def test_a_model_without_a_price_is_not_free(customer: ApiCustomer) -> None:
    customer.simulate("echo", prices=None)

    assert_error(customer.ask("echo"), 503, "model_not_configured")


def test_a_model_that_does_not_exist_is_not_found(customer: ApiCustomer) -> None:
    assert_error(customer.ask("nothing"), 404, "model_not_found", param="model")


def test_an_option_that_no_deployment_has_is_named(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    answer = customer.ask("echo", prompt_logprobs=1)

    assert_error(answer, 501, "unsupported_option", param="prompt_logprobs")
    assert answer.headers["x-should-retry"] == "false"
    assert not Reservation.objects.exists()


def test_a_deployment_that_lacks_an_option_is_passed_over(customer: ApiCustomer) -> None:
    model = make_model("echo", tokenizer="o200k_base")
    lacking = make_backend(
        "lacking", options={"lacks": ["seed"]}, kind="openai", base_url="http://127.0.0.1:9/v1"
    )
    deploy(model, lacking, weight=1_000_000)
    deploy(model, make_backend())

    assert customer.ask("echo", seed=1).status == 200
    assert customer.activity().attempts == 1


# --- who may ------------------------------------------------------------------------------------------


def test_a_request_without_a_valid_key_is_refused(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    content = [("Content-Type", "application/json")]

    assert_error(exchange("POST", PATH, content, [b"{}"]), 401, "invalid_api_key")
    assert_error(customer.post(question("echo"), key="gwk_garbage"), 401, "invalid_api_key")
    assert_error(customer.post(question("echo"), headers={"X-Api-Key": customer.value}), 401)


def test_a_key_in_the_x_api_key_header_is_accepted(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    sent = [("X-Api-Key", customer.value), ("Content-Type", "application/json")]
    body = b'{"model": "echo", "messages": [{"role": "user", "content": "x"}]}'

    assert exchange("POST", PATH, sent, [body]).status == 200


def test_bad_keys_from_one_address_are_counted(customer: ApiCustomer, settings: Any) -> None:
    settings.GATEWAY_FAILED_LOGINS_PER_MINUTE = 2

    statuses = [customer.post(question("echo"), key=f"gwk_{turn}").status for turn in range(3)]

    assert statuses == [401, 401, 429]


def test_a_key_without_the_permission_is_refused(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    reader = make_project_key(customer.project, permissions=["models:read"])

    answer = customer.post(question("echo"), key=reader.value)

    assert_error(answer, 403, "permission_denied")
    assert "inference:write" in answer.error["message"]


def test_an_admin_key_is_refused(customer: ApiCustomer) -> None:
    admin = make_admin_key(customer.project.organization)

    assert_error(customer.post(question("echo"), key=admin.value), 403, "wrong_key_kind")


@pytest.mark.parametrize("end", ["revoked", "suspended"])
def test_a_key_that_has_ended_admits_nothing_however_fresh_the_cache_is(
    customer: ApiCustomer, end: str
) -> None:
    customer.simulate("echo")
    assert customer.ask("echo").status == 200
    stop = organization_services.revoke_key if end == "revoked" else organization_services.suspend_key

    stop(key=customer.key, actor=SOMEONE)

    assert_error(customer.ask("echo"), 401, "invalid_api_key")


def test_the_key_of_an_archived_project_is_refused(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    assert customer.ask("echo").status == 200

    organization_services.archive_project(project=customer.project, actor=SOMEONE)

    assert_error(customer.ask("echo"), 403, "project_archived")


def test_the_rate_limit_of_a_key_is_kept(customer: ApiCustomer, settings: Any) -> None:
    customer.simulate("echo")
    settings.GATEWAY_REQUESTS_PER_MINUTE = 1
    answers = [customer.ask("echo") for _ in range(3)]  # three, in case the minute ends in between

    limited = [answer for answer in answers if answer.status != 200]
    assert limited
    assert_error(limited[0], 429, "rate_limit_exceeded")
    assert 1 <= int(limited[0].headers["retry-after"]) <= 60


# --- how it is sent -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_a_method_other_than_post_is_refused(customer: ApiCustomer, method: str) -> None:
    answer = customer.api.request(method, PATH)

    assert_error(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("path", [f"/{PATH}", f"{PATH}/", "/v1/chat", f"{PATH}/x"])
def test_a_path_that_differs_is_not_found(customer: ApiCustomer, path: str) -> None:
    assert_error(customer.api.post(path, {}), 404, "not_found")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": ""},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Encoding": "gzip"},
    ],
)
def test_a_media_type_other_than_json_is_refused(customer: ApiCustomer, headers: dict[str, str]) -> None:
    assert_error(customer.post(b"{}", headers=headers), 415, "unsupported_media_type")


def test_the_key_is_checked_before_the_media_type(customer: ApiCustomer) -> None:
    sent = {"Content-Type": "text/plain"}

    assert_error(customer.post(b"{}", headers=sent, key="gwk_garbage"), 401)


def test_a_media_type_with_a_charset_is_accepted(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    answer = customer.post(question("echo"), headers={"Content-Type": "application/json; charset=UTF-8"})

    assert answer.status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "echo", "messages": [], "x": 1}'])
def test_a_body_that_is_no_chat_request_is_refused(customer: ApiCustomer, body: bytes) -> None:
    assert_error(customer.post(body), 400, "invalid_request")


def test_a_field_at_fault_is_named(customer: ApiCustomer) -> None:
    answer = customer.post({"model": "echo", "messages": [{"role": "poet", "content": "x"}]})

    assert_error(answer, 400, "invalid_request", param="messages[0].role")


def test_a_body_over_the_size_limit_is_refused(customer: ApiCustomer, settings: Any) -> None:
    settings.GATEWAY_MAX_BODY_BYTES = 1024

    assert_error(customer.ask("echo", "x" * 2000), 413, "request_too_large")


def test_a_large_body_in_many_pieces_is_served(customer: ApiCustomer) -> None:
    customer.simulate("echo", context_length=1_000_000)
    text = "many words " * 40_000
    content = b'{"model": "echo", "messages": [{"role": "user", "content": "%s"}], "max_tokens": 5}'
    whole = content % text.encode()
    sent = [("Authorization", f"Bearer {customer.value}"), ("Content-Type", "application/json")]

    answer = exchange("POST", PATH, sent, [whole[at : at + 10_000] for at in range(0, len(whole), 10_000)])

    assert answer.status == 200
    assert answer.json["usage"]["prompt_tokens"] == pytest.approx(80_000, rel=0.01)
