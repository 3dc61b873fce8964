"""A client asks what its own request cost, and is told exactly what the ledger charged, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from billing.ledger.ledger import NOT_YET, Ledger
from billing.models import CostLine, Reservation
from billing.money import parse_usd, usd
from gateway_site.api.openapi.open_questions import EXTENSIONS
from organization.models import Project
from tests.harness.client import Answer, exchange
from tests.harness.documented_routes import document
from tests.harness.error_checks import assert_error
from tests.inference.customer import ApiCustomer, closing_application, question, records
from tests.inference.dialects.responses import customer as responses

Ask = Callable[..., Answer]
ASK = {"X-Include-Cost": "true"}
PATHS = ("/v1/chat/completions", "/v1/responses")


def ask_chat(customer: ApiCustomer, stream: bool, headers: dict[str, str]) -> Answer:
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return customer.ask("echo", headers=headers, **options)


def ask_responses(customer: ApiCustomer, stream: bool, headers: dict[str, str]) -> Answer:
    return responses.ask(customer, "echo", stream=stream, headers=headers)


DIALECTS = pytest.mark.parametrize("ask", [ask_chat, ask_responses], ids=["chat", "responses"])
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


@pytest.fixture
def customer(customer: ApiCustomer) -> ApiCustomer:
    customer.simulate("echo")
    return customer


def last_record(answer: Answer) -> dict[str, Any]:
    """The record that has the usage: a chunk of chat, or the response in the last event."""
    assert answer.status == 200, answer.body
    if b"\nevent: " in answer.body:
        return responses.result_of(answer)
    chunk, done = records(answer.body)[-2:]
    assert done == "[DONE]"
    return chunk  # type: ignore[no-any-return]


def cost_in(answer: Answer) -> str | None:
    """The cost in a JSON answer's head or in a stream's last record; never in both."""
    if answer.headers["content-type"] == "application/json":
        assert "cost" not in answer.json
        return answer.headers.get("x-cost-usd")
    assert "x-cost-usd" not in answer.headers
    assert answer.body.count(b'"cost"') <= 1
    found: str | None = last_record(answer).get("cost")
    return found


def charged(answer: Answer) -> int:
    lines = CostLine.objects.filter(reservation=answer.headers["x-request-id"])
    return sum(line.amount_nanousd for line in lines)


@DIALECTS
@BOTH
def test_it_works(customer: ApiCustomer, ask: Ask, stream: bool) -> None:
    answer = ask(customer, stream, ASK)

    cost = cost_in(answer)
    assert cost == usd(charged(answer))
    assert parse_usd(cost) == customer.account.settled_nanousd > 0
    if stream:
        assert last_record(answer)["usage"]


@DIALECTS
@BOTH
@pytest.mark.parametrize("headers", [{}, {"X-Include-Cost": "False"}])
def test_who_does_not_ask_is_not_told(
    customer: ApiCustomer, ask: Ask, stream: bool, headers: dict[str, str]
) -> None:
    answer = ask(customer, stream, headers)

    assert answer.status == 200
    assert cost_in(answer) is None
    assert b'"cost"' not in answer.body


def test_a_chat_stream_without_usage_has_no_record_for_it(customer: ApiCustomer) -> None:
    answer = customer.ask("echo", stream=True, headers=ASK)

    assert answer.status == 200
    assert b'"cost"' not in answer.body
    assert "x-cost-usd" not in answer.headers


def test_upper_and_lower_case_are_one(customer: ApiCustomer) -> None:
    assert cost_in(customer.ask("echo", headers={"x-include-cost": "True"}))


@DIALECTS
@pytest.mark.parametrize("value", ["yes", "", "true,true"])
def test_any_other_value_is_refused_by_the_name_of_the_header(
    customer: ApiCustomer, ask: Ask, value: str
) -> None:
    assert_error(
        ask(customer, False, {"X-Include-Cost": value}), 400, "invalid_request", param="X-Include-Cost"
    )
    assert not Reservation.objects.exists()


def test_a_header_that_is_sent_twice_is_refused(customer: ApiCustomer) -> None:
    body = json.dumps(question("echo")).encode()
    headers = [
        ("Authorization", f"Bearer {customer.value}"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        *ASK.items(),
        *ASK.items(),
    ]

    answer = exchange("POST", PATHS[0], headers, [body], application=closing_application)

    assert_error(answer, 400, "invalid_request", param="X-Include-Cost")


@DIALECTS
@BOTH
@pytest.mark.parametrize("value", ["true", "nonsense"])
def test_without_extensions_it_is_a_header_that_nobody_reads(
    customer: ApiCustomer, ask: Ask, settings: Any, stream: bool, value: str
) -> None:
    settings.GATEWAY_EXTENSIONS = False

    answer = ask(customer, stream, {"X-Include-Cost": value})

    assert answer.status == 200
    assert cost_in(answer) is None


@DIALECTS
@BOTH
def test_a_charge_that_is_not_stored_yet_is_not_told(
    customer: ApiCustomer, ask: Ask, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Ledger.settle

    async def settle_unseen(ledger: Ledger, *args: Any, **options: Any) -> Any:
        await settle(ledger, *args, **options)
        return NOT_YET

    monkeypatch.setattr(Ledger, "settle", settle_unseen)

    answer = ask(customer, stream, ASK)

    assert answer.status == 200
    assert cost_in(answer) is None


def test_each_customer_is_told_the_cost_of_its_own_request(
    customer: ApiCustomer, rival_project: Project
) -> None:
    stranger = ApiCustomer.of(rival_project)

    own = customer.ask("echo", "hello there my friend, " * 20, headers=ASK)
    others = stranger.ask("echo", "hi", headers=ASK)

    assert parse_usd(str(cost_in(own))) == customer.account.settled_nanousd == charged(own)
    assert parse_usd(str(cost_in(others))) == stranger.account.settled_nanousd == charged(others)
    assert cost_in(own) != cost_in(others)


# --- the document -------------------------------------------------------------------------------------


def extensions_in(node: Any, name: str = "") -> Iterator[str]:
    """The names under which the document marks something as an extension."""
    if isinstance(node, dict):
        if "x-extension" in node:
            yield node.get("name", name)
        for key, value in node.items():
            yield from extensions_in(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from extensions_in(value)


def test_the_document_marks_header_and_field_as_extensions() -> None:
    made = document()

    for path in PATHS:
        assert {"X-Include-Cost", "X-Cost-Usd"} <= set(extensions_in(made["paths"][path]["post"]))
    assert set(extensions_in(made["paths"]["/v1/messages/count_tokens"])) == set()
    for name in ("ChatCompletionChunk", "ResponseObject"):
        schema = made["components"]["schemas"][name]
        assert schema["properties"]["cost"]["x-extension"] is True
        assert "cost" not in schema["required"]
    assert set(extensions_in(made)) == {"get", "X-Include-Cost", "X-Cost-Usd", "cost"}
    assert [row.name for row in EXTENSIONS] == ["`GET /v1/models`", "`X-Include-Cost: true`"]


def test_without_extensions_the_document_has_none(settings: Any) -> None:
    settings.GATEWAY_EXTENSIONS = False
    made = document()

    assert list(extensions_in(made)) == []
    text = json.dumps(made)
    for word in ("X-Include-Cost", "X-Cost-Usd", '"cost"', '"/v1/models"'):
        assert word not in text
    assert "X-Service-Session-ID" in text
