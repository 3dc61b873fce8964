"""The real OpenAI SDK, told to be strict, asks a running server for responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from billing.models import Reservation
from billing.money import parse_usd
from tests.harness.live_server import live_server
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, HELLO, ApiCustomer

MODELS = (
    "echo",
    "words",
    "thinker",
    "endless",
    "refusal",
    "fails-rejected",
    "fails-busy",
    "fails-cut-midway",
)
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Recipe(BaseModel):
    title: str
    minutes: int


def test_a_customer_uses_the_sdk(customer: ApiCustomer, process_environment: dict[str, str]) -> None:
    """On the simulator, and through the server itself as an OpenAI-compatible one, which knows chat alone."""
    with live_server(process_environment) as running:
        address = f"{running.address}/v1"
        simulator = make_backend()
        itself = make_backend("itself", "openai", base_url=address, credential=customer.value)
        for name in MODELS:
            deploy(make_model(f"sim/{name}", **COLUMNS), simulator)
            deploy(make_model(f"via/{name}", **COLUMNS), itself, f"sim/{name}")
        with OpenAI(
            base_url=address, api_key=customer.value, max_retries=0, _strict_response_validation=True
        ) as client:
            for way in ("sim", "via"):
                for check in CHECKS:
                    check(client, way)
        with OpenAI(base_url=address, api_key=customer.value, max_retries=0) as client:
            for check in CHECKS:
                check(client, "sim")
        asyncio.run(check_async(address, customer.value, "via"))

    assert not Reservation.objects.filter(state="held").exists()


def check_plain(client: OpenAI, way: str) -> None:
    response = client.responses.create(model=f"{way}/echo", input=HELLO)

    assert response.output_text == HELLO
    assert response.status == "completed"
    assert response.usage
    assert response.usage.output_tokens == 4
    assert response._request_id
    assert response.id == f"resp_{response._request_id.replace('-', '')}"


def check_what_was_asked_is_told(client: OpenAI, way: str) -> None:
    response = client.responses.create(
        model=f"{way}/echo",
        input=HELLO,
        instructions="Repeat.",
        metadata={"a": "b"},
        temperature=0.5,
        max_output_tokens=50,
        tools=[WEATHER],
        tool_choice="none",
        truncation="auto",
        store=False,
        user="u",
    )

    assert response.output_text == HELLO
    assert (response.instructions, response.metadata) == ("Repeat.", {"a": "b"})
    assert response.tools[0].name == "weather"  # type: ignore[union-attr]
    assert response.tool_choice == "none"


def check_incomplete(client: OpenAI, way: str) -> None:
    response = client.responses.create(model=f"{way}/endless", input=HELLO, max_output_tokens=5)

    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"


def check_stream(client: OpenAI, way: str) -> None:
    events = list(client.responses.create(model=f"{way}/echo", input=HELLO, stream=True))

    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == HELLO
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == HELLO
    assert last.response.usage


def check_cost(client: OpenAI, way: str) -> None:
    question: Any = {"model": f"{way}/echo", "input": HELLO, "extra_headers": {"X-Include-Cost": "true"}}
    raw = client.responses.with_raw_response.create(**question)
    stream = client.responses.with_raw_response.create(**question, stream=True)
    *_, last = stream.parse()

    assert last.response.usage == raw.parse().usage
    for answer, cost in ((raw, raw.headers["x-cost-usd"]), (stream, last.response.model_extra["cost"])):
        assert parse_usd(cost) > 0
        assert parse_usd(cost) == Reservation.objects.get(pk=answer.request_id).charged_nanousd


def check_stream_helper(client: OpenAI, way: str) -> None:
    with client.responses.stream(model=f"{way}/words", input=HELLO) as stream:
        seen = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()

    assert seen == final.output_text


def check_refusal(client: OpenAI, way: str) -> None:
    with client.responses.stream(model=f"{way}/refusal", input=HELLO) as stream:
        message: Any = stream.get_final_response().output[0]

    assert message.content[0].type == "refusal"


def check_function_loop(client: OpenAI, way: str) -> None:
    model, items = f"{way}/words", [{"role": "user", "content": "weather in Bern?"}]
    called: Any = client.responses.create(model=model, input=items, tools=[WEATHER])  # type: ignore[arg-type]
    (call,) = [item for item in called.output if item.type == "function_call"]
    assert set(json.loads(call.arguments)) == {"city"}

    items += called.output
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    answered = client.responses.create(model=model, input=items, tools=[WEATHER])  # type: ignore[arg-type]

    assert answered.output_text
    with client.responses.stream(model=model, input=HELLO, tools=[WEATHER], tool_choice="required") as stream:
        grown = "".join(
            event.delta for event in stream if event.type == "response.function_call_arguments.delta"
        )
        (streamed,) = stream.get_final_response().output
    assert grown == streamed.arguments  # type: ignore[union-attr]


def check_structured_answers(client: OpenAI, way: str) -> None:
    parsed = client.responses.parse(model=f"{way}/words", input=HELLO, text_format=Recipe)
    with client.responses.stream(model=f"{way}/words", input=HELLO, text_format=Recipe) as stream:
        streamed = stream.get_final_response()

    assert isinstance(parsed.output_parsed, Recipe)
    assert isinstance(streamed.output_parsed, Recipe)
    # What the helper hands back has its own keys in it, and can still be sent on.
    items: Any = [*parsed.output, {"role": "user", "content": HELLO}]
    assert client.responses.create(model=f"{way}/echo", input=items).output_text == HELLO


def check_reasoning(client: OpenAI, way: str) -> None:
    raw: Any = client.responses.create(
        model=f"{way}/thinker", input=HELLO, include=["reasoning.encrypted_content"]
    )
    thought, message = raw.output
    assert (thought.type, message.type) == ("reasoning", "message")
    assert thought.content[0].text
    assert thought.encrypted_content
    with client.responses.stream(
        model=f"{way}/thinker", input=HELLO, reasoning={"summary": "auto"}
    ) as stream:
        summary = "".join(
            event.delta for event in stream if event.type == "response.reasoning_summary_text.delta"
        )
        final: Any = stream.get_final_response()
    assert summary == final.output[0].summary[0].text

    items = [{"role": "user", "content": HELLO}, *raw.output, {"role": "user", "content": "Go on."}]
    assert client.responses.create(model=f"{way}/thinker", input=items).output_text


def check_extensions_of_the_interface(client: OpenAI, way: str) -> None:
    response = client.responses.create(
        model=f"{way}/echo",
        input=HELLO,
        extra_body={"policy_ids": [], "frequency_penalty": 0.5},
        extra_headers={"X-Service-Session-ID": "session"},
    )

    assert response.output_text == HELLO


def check_errors(client: OpenAI, way: str) -> None:
    def failing(**fields: Any) -> Any:
        with pytest.raises(openai.APIStatusError) as raised:
            client.responses.create(**{"model": f"{way}/echo", "input": HELLO, **fields})
        error: Any = raised.value
        assert error.request_id == error.body["request_id"]
        return error

    assert isinstance(failing(model="nothing"), openai.NotFoundError)
    stored = failing(store=True)
    assert isinstance(stored, openai.BadRequestError)
    assert stored.param == "store"
    assert failing(previous_response_id="resp_1").param == "previous_response_id"
    assert isinstance(failing(model=f"{way}/fails-rejected"), openai.UnprocessableEntityError)
    assert isinstance(failing(model=f"{way}/fails-busy", stream=True), openai.RateLimitError)
    stream = client.responses.create(model=f"{way}/fails-cut-midway", input=HELLO, stream=True)
    with pytest.raises(openai.APIError) as raised:
        list(stream)
    assert raised.value.code == "backend_failed"


CHECKS: list[Callable[[OpenAI, str], None]] = [
    check_plain,
    check_what_was_asked_is_told,
    check_incomplete,
    check_stream,
    check_cost,
    check_stream_helper,
    check_refusal,
    check_function_loop,
    check_structured_answers,
    check_reasoning,
    check_extensions_of_the_interface,
    check_errors,
]


async def check_async(address: str, key: str, way: str) -> None:
    async with AsyncOpenAI(
        base_url=address, api_key=key, max_retries=0, _strict_response_validation=True
    ) as client:
        plain = await client.responses.create(model=f"{way}/echo", input=HELLO)
        async with client.responses.stream(model=f"{way}/echo", input=HELLO) as stream:
            final = await stream.get_final_response()

    assert plain.output_text == final.output_text == HELLO
