"""A dialect is one object and one row of the table: with these a toy is served, judged, paid, documented."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from msgspec.json import encode

from billing.models import Reservation
from gateway_site import asgi
from gateway_site.api.errors import ApiError
from gateway_site.api.openapi.document import GENERATION_STATUSES
from inference.backends import registry as backends
from inference.dialects import body, registry
from inference.dialects.base import Dialect, ParsedRequest, RequestContext
from inference.dialects.documentation import RouteDocumentation, StreamDocumentation
from inference.events import Event, TextDelta, Usage
from inference.models import Activity
from inference.prompt import Prompt, Turn
from policies import services
from policies.enforcement.judging import score_cache
from policies.models import Policy
from tests.factories import SOMEONE
from tests.harness.client import Answer, exchange
from tests.harness.documented_routes import Route, documented_routes
from tests.harness.error_checks import assert_error
from tests.harness.ledger_checks import assert_books_balance
from tests.inference.customer import HELLO, ApiCustomer

PATH = "/v1/toy"
FORBIDDEN = f"this is internal only, friend. {'And more. ' * 50}"
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


class ToyRequest(Struct, forbid_unknown_fields=True):
    engine: str
    question: str
    stream: bool = False
    policy_ids: list[str] = []


class ToyAnswer(Struct):
    id: str
    answer: str
    tokens: int


class ToyWord(Struct):
    word: str


class ToyWriter:
    def __init__(self, id: str) -> None:
        self._id = id
        self._words: list[str] = []
        self._tokens = 0

    def add(self, event: Event, /) -> None:
        if isinstance(event, TextDelta):
            self._words.append(event.text)
        elif isinstance(event, Usage):
            self._tokens = event.total_tokens

    def result(self) -> bytes:
        return encode(ToyAnswer(self._id, "".join(self._words), self._tokens))

    def write(self, event: Event, /) -> bytes:
        self.add(event)
        return record("word", ToyWord(event.text)) if isinstance(event, TextDelta) and event.text else b""

    def end(self, cost_usd: str | None = None, /) -> bytes:
        cost = {} if cost_usd is None else {"cost": cost_usd}
        return record("end", {"tokens": self._tokens, **cost})

    def fail(self, error: ApiError, /) -> bytes:
        return record("oops", {"why": error.code})


def record(kind: str, data: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + encode(data) + b"\n\n"


class ToyDialect(Dialect[ParsedRequest]):
    path = PATH
    documentation = RouteDocumentation(
        operation_id="askToy",
        summary="Ask the toy",
        description="Words in, words out.",
        request=ToyRequest,
        response=ToyAnswer,
        stream=StreamDocumentation(payload=ToyWord, description="A word."),
        error_statuses=GENERATION_STATUSES,
    )

    def parse(self, raw: bytes, context: RequestContext, /) -> ParsedRequest:
        request = body.convert(body.loads(raw), ToyRequest)
        prompt = Prompt(model=request.engine, turns=(Turn(role="user", content=request.question),))
        return ParsedRequest(prompt, tuple(request.policy_ids), request.stream)

    def writer(self, request: ParsedRequest, context: RequestContext, /) -> ToyWriter:
        return ToyWriter(f"toy-{context.request_id.hex}")


Ask = Callable[..., Answer]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask the application as it is started with one more row in the table of dialects."""
    monkeypatch.setattr(registry, "DIALECTS", (*registry.DIALECTS, ToyDialect()))
    score_cache.clear()
    application = runpy.run_path(asgi.__file__)["application"]

    async def closing_application(scope: Any, receive: Any, send: Any) -> None:
        try:
            await application(scope, receive, send)
        finally:
            await backends.client.close()

    def post(customer: ApiCustomer, **fields: Any) -> Answer:
        content = json.dumps({"engine": "echo", "question": HELLO, **fields}).encode()
        headers = {
            "Authorization": f"Bearer {customer.value}",
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
        }
        return exchange("POST", PATH, list(headers.items()), [content], application=closing_application)

    return post


def records_of(answer: Answer) -> list[tuple[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    parted = [each.split(b"\ndata: ") for each in answer.body.removesuffix(b"\n\n").split(b"\n\n")]
    return [(kind.removeprefix(b"event: ").decode(), json.loads(data)) for kind, data in parted]


def publish(customer: ApiCustomer, direction: str) -> Policy:
    policy = services.create_policy(
        organization=customer.project.organization,
        actor=SOMEONE,
        name="Internal",
        rule='Does the text contain "internal only"?',
        mode="enforcing",
        direction=direction,
    )
    return services.publish_policy(policy=policy, actor=SOMEONE)


def assert_settled(customer: ApiCustomer) -> Activity:
    activity, reservation = customer.activity(), customer.reservation()
    assert activity.endpoint == PATH
    assert activity.id == reservation.pk
    assert reservation.state == Reservation.State.SETTLED
    assert customer.account.settled_nanousd == activity.cost_nanousd > 0  # type: ignore[operator]
    assert_books_balance()
    return activity


def test_an_answer_in_json_has_the_shape_of_the_dialect_and_is_paid_for(
    customer: ApiCustomer, ask: Ask
) -> None:
    customer.simulate("echo")

    answer = ask(customer)

    activity = assert_settled(customer)
    assert answer.status == 200
    assert answer.json["id"] == f"toy-{activity.id.hex}"
    assert answer.json["answer"] == HELLO
    assert answer.json["tokens"] == activity.prompt_tokens + activity.completion_tokens  # type: ignore[operator]


def test_a_stream_has_the_records_of_the_dialect_and_is_paid_for(customer: ApiCustomer, ask: Ask) -> None:
    customer.simulate("echo")

    *words, last = records_of(ask(customer, stream=True))

    activity = assert_settled(customer)
    assert activity.is_stream
    assert {kind for kind, _ in words} == {"word"}
    assert "".join(data["word"] for _, data in words) == HELLO
    assert last == ("end", {"tokens": activity.prompt_tokens + activity.completion_tokens})  # type: ignore[operator]


@BOTH
def test_a_request_policy_refuses_and_the_hold_is_released(
    customer: ApiCustomer, ask: Ask, stream: bool
) -> None:
    customer.simulate("echo")
    publish(customer, "request")

    answer = ask(customer, question=FORBIDDEN, stream=stream)

    assert_error(answer, 403, "policy_violation")
    assert customer.reservation().state == Reservation.State.RELEASED
    assert customer.account.settled_nanousd == 0
    assert_books_balance()


def test_a_response_policy_ends_a_stream_with_the_error_of_the_dialect(
    customer: ApiCustomer, ask: Ask, settings: Any
) -> None:
    settings.GATEWAY_JUDGE_WINDOW_CHARACTERS = 40
    customer.simulate("echo")
    publish(customer, "response")

    answer = ask(customer, question="nothing to see here, " * 10 + FORBIDDEN, stream=True)

    assert answer.status == 200
    assert b"internal" not in answer.body
    assert records_of(answer)[-1] == ("oops", {"why": "policy_violation"})
    assert_settled(customer)


@BOTH
def test_without_credit_nothing_is_generated(poor: ApiCustomer, ask: Ask, stream: bool) -> None:
    poor.simulate("echo")

    answer = ask(poor, stream=stream)

    assert answer.status == 402
    assert not Reservation.objects.exists()
    assert_books_balance()


def test_a_body_that_does_not_fit_is_refused_by_the_name_of_its_field(
    customer: ApiCustomer, ask: Ask
) -> None:
    answer = ask(customer, colour="red")

    assert_error(answer, 400, "invalid_request", param="colour")


def test_the_openapi_document_has_the_route(ask: Ask) -> None:
    (route,) = toy_routes()

    assert (route.method, route.permission) == ("POST", "inference:write")
    assert route.operation["operationId"] == "askToy"
    assert route.body_fields == {"engine", "question", "stream", "policy_ids"}
    assert set(route.operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(route.operation["responses"]) == {"200", *map(str, GENERATION_STATUSES)}


def test_without_its_row_it_is_neither_served_nor_documented(customer: ApiCustomer) -> None:
    assert customer.api.post(PATH, {"engine": "echo", "question": HELLO}).status == 404
    assert toy_routes() == []


def toy_routes() -> list[Route]:
    return [route for route in documented_routes() if route.path == PATH]
