"""POST /v1/responses through the whole application, on the simulator."""

from __future__ import annotations

from typing import Any

import pytest

from billing.models import Reservation
from inference.backends.simulator.backend import SimulatorBackend
from inference.prompt import Prompt
from inference.tokenizer import counter
from organization.models import Project
from tests.factories import make_admin_key, make_project_key
from tests.harness.error_checks import assert_error
from tests.inference.customer import HELLO, ApiCustomer
from tests.inference.dialects.responses.customer import ask, result_of, text_of
from tests.inference.dialects.responses.sdk import payloads

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
PATH = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Prompt]:
    """The prompts that came as far as the backend."""
    prompts: list[Prompt] = []
    generate = SimulatorBackend.generate

    def watched(self: Any, prompt: Prompt, **options: Any) -> Any:
        prompts.append(prompt)
        return generate(self, prompt, **options)

    monkeypatch.setattr(SimulatorBackend, "generate", watched)
    return prompts


@BOTH
def test_it_works(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("echo")

    answer = ask(customer, "echo", stream=stream)

    assert text_of(answer) == HELLO
    assert customer.reservation().state == Reservation.State.SETTLED
    row = customer.activity()
    assert (row.endpoint, row.is_stream, row.status) == (PATH, stream, 200)
    assert row.cost_nanousd == customer.reservation().charged_nanousd


@BOTH
def test_the_answer_has_its_usage_as_it_was_settled(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("echo")

    result = result_of(ask(customer, "echo", stream=stream))

    assert result["usage"]["input_tokens"] == counter("o200k_base")(HELLO)
    assert result["usage"]["output_tokens"] == customer.activity().completion_tokens


def test_the_id_is_that_of_the_request(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    answer = ask(customer, "echo")

    assert answer.json["id"] == "resp_" + answer.headers["x-request-id"].replace("-", "")


def test_a_stream_has_the_headers_of_one(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    answer = ask(customer, "echo", stream=True)

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert b"[DONE]" not in answer.body


@BOTH
def test_an_answer_at_its_bound_is_incomplete(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("endless")

    result = result_of(ask(customer, "endless", stream=stream, max_output_tokens=5))

    assert result["status"] == "incomplete"
    assert result["usage"]["output_tokens"] <= 5


@BOTH
def test_a_function_loop_without_memory(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("words")
    question = [{"role": "user", "content": "weather in Bern?"}]

    called = result_of(ask(customer, "words", question, tools=[WEATHER], stream=stream))
    (call,) = called["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    answered = ask(customer, "words", [*question, call, result], tools=[WEATHER], stream=stream)

    assert call["name"] == "weather"
    assert '"city"' in call["arguments"]
    assert text_of(answered)


@BOTH
def test_encrypted_reasoning_comes_back_as_it_was(
    customer: ApiCustomer, seen: list[Prompt], stream: bool
) -> None:
    customer.simulate("thinker")
    include = ["reasoning.encrypted_content"]

    output = result_of(ask(customer, "thinker", include=include, stream=stream))["output"]
    thoughts = output[0].pop("content")[0]["text"]
    again = ask(
        customer, "thinker", [{"role": "user", "content": "?"}, *output, {"role": "user", "content": "!"}]
    )

    assert again.status == 200
    assert thoughts not in output[0]["encrypted_content"]
    assert seen[1].turns[1].reasoning == thoughts


def test_another_organizations_reasoning_is_refused(customer: ApiCustomer, rival_project: Project) -> None:
    customer.simulate("thinker")
    rival = ApiCustomer.of(rival_project)
    output = result_of(ask(rival, "thinker", include=["reasoning.encrypted_content"]))["output"]

    answer = ask(customer, "thinker", [*output, {"role": "user", "content": "?"}])

    assert_error(answer, 400, "invalid_request", param="input[0].encrypted_content")


def test_web_search_cites_what_it_found(customer: ApiCustomer) -> None:
    customer.simulate("words")

    answer = ask(customer, "words", tools=[{"type": "web_search"}], stream=True)

    events = payloads(answer.body)
    (cited,) = [event for event in events if event["type"] == "response.output_text.annotation.added"]
    message = result_of(answer)["output"][-1]
    assert message["content"][0]["annotations"] == [cited["annotation"]]


def test_an_option_that_the_backend_lacks_is_named_by_its_field(customer: ApiCustomer) -> None:
    customer.simulate("words")
    narrow = {"type": "web_search", "filters": {"allowed_domains": ["example.com"]}}

    assert_error(ask(customer, "words", tools=[narrow]), 501, "unsupported_option", param="tools[0].filters")


@BOTH
@pytest.mark.parametrize(
    ("model", "status"), [("fails-rejected", 422), ("fails-busy", 429), ("fails-500", 502)]
)
def test_a_failure_before_the_first_word_is_a_status(
    customer: ApiCustomer, model: str, status: int, stream: bool
) -> None:
    customer.simulate(model)

    assert_error(ask(customer, model, stream=stream), status)


def test_a_failure_under_way_ends_the_stream(customer: ApiCustomer) -> None:
    customer.simulate("fails-cut-midway")

    answer = ask(customer, "fails-cut-midway", stream=True)

    assert answer.status == 200
    *earlier, error, failed = payloads(answer.body)
    assert [event["sequence_number"] for event in [*earlier, error, failed]] == list(range(len(earlier) + 2))
    assert (error["type"], error["error"]["code"]) == ("error", "backend_failed")
    assert error["error"]["request_id"] == answer.headers["x-request-id"]
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["id"] == earlier[0]["response"]["id"]
    assert customer.activity().status == 502


@pytest.mark.parametrize(
    "fields",
    [{"store": True}, {"background": True}, {"previous_response_id": "resp_1"}, {"conversation": "conv_1"}],
    ids=lambda fields: next(iter(fields)),
)
def test_what_needs_a_memory_is_refused(customer: ApiCustomer, fields: dict[str, Any]) -> None:
    customer.simulate("echo")

    answer = ask(customer, "echo", **fields)

    assert_error(answer, 400, "invalid_request", param=next(iter(fields)))
    assert not Reservation.objects.exists()


@BOTH
def test_without_credit_it_is_refused_before_the_first_byte(poor: ApiCustomer, stream: bool) -> None:
    poor.simulate("echo")

    assert_error(ask(poor, "echo", stream=stream), 402, "insufficient_credit")


def test_a_key_or_model_that_may_not_be_used_is_refused(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    reader = make_project_key(customer.project, permissions=["models:read"])
    admin = make_admin_key(customer.project.organization)

    assert_error(ask(customer, "echo", key="gwk_garbage"), 401, "invalid_api_key")
    assert_error(ask(customer, "echo", key=reader.value), 403, "permission_denied")
    assert_error(ask(customer, "echo", key=admin.value), 403, "wrong_key_kind")
    assert_error(ask(customer, "nothing"), 404, "model_not_found", param="model")


@pytest.mark.parametrize("name", ["X-Service-Session-ID", "X-Alt-Session-ID"])
def test_a_session_is_a_hint_for_the_cache(customer: ApiCustomer, seen: list[Prompt], name: str) -> None:
    customer.simulate("echo")

    assert ask(customer, "echo", headers={name: "s" * 512}).status == 200
    assert_error(ask(customer, "echo", headers={name: "s" * 513}), 400, param=name)

    assert seen[0].cache.key is not None
    assert "sss" not in seen[0].cache.key


def test_a_large_input_is_answered(customer: ApiCustomer) -> None:
    customer.simulate("echo", context_length=1_000_000)

    answer = ask(customer, "echo", [{"role": "user", "content": "many words " * 40_000}], max_output_tokens=5)

    assert answer.json["usage"]["input_tokens"] == pytest.approx(80_000, rel=0.01)


@BOTH
def test_long_instructions_and_tools_are_repeated_as_they_were_sent(
    customer: ApiCustomer, stream: bool
) -> None:
    customer.simulate("words", context_length=10_000_000)
    tool = {"type": "function", "name": "f", "parameters": {"enum": [f"{n}\u2028" for n in range(5_000)]}}
    instructions = 'Say "nothing", \u2028 at length. ' * 5_000

    answer = ask(
        customer, "words", stream=stream, instructions=instructions, tools=[tool], tool_choice="none"
    )

    assert result_of(answer)["instructions"] == instructions
    assert result_of(answer)["tools"] == [tool]
