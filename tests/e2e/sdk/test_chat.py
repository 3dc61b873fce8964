"""The real OpenAI SDK against a running server: on the simulator, and through the `openai` backend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from billing.models import Reservation
from billing.money import parse_usd
from tests.e2e.waiting import until
from tests.harness.live_server import LiveServer, live_server
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, HELLO, ApiCustomer

MODELS = ("echo", "words", "thinker", "endless", "paced-200x100", "fails-rejected", "fails-busy", "fails-500")
MESSAGES: Any = [{"role": "user", "content": HELLO}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Recipe(BaseModel):
    title: str
    minutes: int


@contextmanager
def serving(
    customer: ApiCustomer, environment: dict[str, str], way: str
) -> Iterator[tuple[OpenAI, LiveServer]]:
    """A server whose models are asked for directly, or through itself as an OpenAI-compatible server."""
    with live_server(environment) as running:
        address = f"{running.address}/v1"
        simulator = make_backend()
        itself = make_backend("itself", "openai", base_url=address, credential=customer.value)
        for name in MODELS:
            deploy(make_model(f"sim/{name}", **COLUMNS), simulator)
            deploy(make_model(f"via/{name}", **COLUMNS), itself, f"sim/{name}")
        with OpenAI(base_url=address, api_key=customer.value, max_retries=0) as client:
            yield client, running


# The second differs in what is between the server and its backend.
BOTH_WAYS = pytest.mark.parametrize("way", ["sim", pytest.param("via", marks=pytest.mark.one_database)])


@BOTH_WAYS
def test_a_customer_uses_the_sdk(
    customer: ApiCustomer, process_environment: dict[str, str], way: str
) -> None:
    with serving(customer, process_environment, way) as (client, running):
        for check in CHECKS:
            check(client, way)
        asyncio.run(check_async(f"{running.address}/v1", customer.value, way))

    assert not Reservation.objects.filter(state__in=["held", "unknown"]).exists()


def check_plain(client: OpenAI, way: str) -> None:
    completion = client.chat.completions.create(model=f"{way}/echo", messages=MESSAGES)

    assert completion.choices[0].message.content == HELLO
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert (
        completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    )


def check_request_ids(client: OpenAI, way: str) -> None:
    raw = client.chat.completions.with_raw_response.create(model=f"{way}/echo", messages=MESSAGES)

    assert raw.headers["x-request-id"] == raw.headers["request-id"]
    assert raw.parse()._request_id == raw.request_id
    assert Reservation.objects.filter(pk=raw.request_id, state="settled").exists()


def check_stream(client: OpenAI, way: str) -> None:
    stream = client.chat.completions.create(model=f"{way}/echo", messages=MESSAGES, stream=True)
    chunks = list(stream)

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == HELLO
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)


def check_usage_in_a_stream(client: OpenAI, way: str) -> None:
    plain = client.chat.completions.create(model=f"{way}/echo", messages=MESSAGES)
    *_, last = client.chat.completions.create(
        model=f"{way}/echo", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )

    assert last.choices == []
    assert last.usage == plain.usage


def check_cost(client: OpenAI, way: str) -> None:
    question: Any = {
        "model": f"{way}/echo",
        "messages": MESSAGES,
        "extra_headers": {"X-Include-Cost": "true"},
    }
    raw = client.chat.completions.with_raw_response.create(**question)
    stream = client.chat.completions.with_raw_response.create(
        **question, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream.parse()

    for answer, cost in ((raw, raw.headers["x-cost-usd"]), (stream, last.model_extra["cost"])):
        assert parse_usd(cost) > 0
        assert parse_usd(cost) == Reservation.objects.get(pk=answer.request_id).charged_nanousd
    assert not any("cost" in chunk.model_extra for chunk in chunks)
    assert "cost" not in raw.parse().model_extra


def check_stream_helper(client: OpenAI, way: str) -> None:
    with client.chat.completions.stream(model=f"{way}/words", messages=MESSAGES, seed=4) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()

    assert final.choices[0].message.content == text


def check_several_completions(client: OpenAI, way: str) -> None:
    completion = client.chat.completions.create(model=f"{way}/words", messages=MESSAGES, n=3, seed=1)
    with client.chat.completions.stream(model=f"{way}/words", messages=MESSAGES, n=3, seed=1) as stream:
        streamed = stream.get_final_completion()

    text = [choice.message.content for choice in completion.choices]
    assert len(set(text)) == 3
    assert [choice.message.content for choice in streamed.choices] == text


def check_tools(client: OpenAI, way: str) -> None:
    conversation: list[Any] = [*MESSAGES]
    for _ in range(3):
        completion = client.chat.completions.create(
            model=f"{way}/words", messages=conversation, tools=[WEATHER]
        )
        message = completion.choices[0].message
        conversation.append(message)
        if completion.choices[0].finish_reason != "tool_calls":
            break
        for call in message.tool_calls or []:
            assert set(json.loads(call.function.arguments)) == {"city"}  # type: ignore[union-attr]
            conversation.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})

    assert [each["role"] for each in conversation if isinstance(each, dict)] == ["user", "tool"]
    assert conversation[-1].content


def check_structured_answers(client: OpenAI, way: str) -> None:
    parsed = client.chat.completions.parse(
        model=f"{way}/words", messages=MESSAGES, response_format=Recipe, max_tokens=500
    )

    assert isinstance(parsed.choices[0].message.parsed, Recipe)


def check_reasoning(client: OpenAI, way: str) -> None:
    shown = client.chat.completions.create(model=f"{way}/thinker", messages=MESSAGES)
    hidden = client.chat.completions.create(
        model=f"{way}/thinker", messages=MESSAGES, extra_body={"reasoning": {"exclude": True}}
    )

    assert shown.choices[0].message.model_extra["reasoning_content"]  # type: ignore[index]
    assert "reasoning_content" not in (hidden.choices[0].message.model_extra or {})
    assert shown.usage is not None
    assert shown.usage.completion_tokens_details is not None
    assert shown.usage.completion_tokens_details.reasoning_tokens


def check_errors(client: OpenAI, way: str) -> None:
    def failing(**fields: Any) -> Any:
        with pytest.raises(openai.APIStatusError) as raised:
            client.chat.completions.create(**{"model": f"{way}/echo", "messages": MESSAGES, **fields})
        error: Any = raised.value
        assert error.request_id == error.body["request_id"]
        return error

    assert isinstance(failing(model="nothing"), openai.NotFoundError)
    refused = failing(messages=[{"role": "user", "content": 5}])
    assert isinstance(refused, openai.BadRequestError)
    assert refused.param == "messages[0].content"
    assert isinstance(failing(model=f"{way}/fails-rejected"), openai.UnprocessableEntityError)
    assert isinstance(failing(model=f"{way}/fails-busy"), openai.RateLimitError)
    assert isinstance(failing(model=f"{way}/fails-500"), openai.InternalServerError)
    assert failing(extra_body={"prompt_logprobs": 3}).status_code == 501
    stranger = client.with_options(api_key="gwk_stranger")
    with pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(model=f"{way}/echo", messages=MESSAGES)


def check_cancelling(client: OpenAI, way: str) -> None:
    stream = client.chat.completions.create(model=f"{way}/paced-200x100", messages=MESSAGES, stream=True)
    seen = [next(stream).choices[0].delta.content for _ in range(5)]
    identifier = stream.response.headers["x-request-id"]
    stream.close()

    assert all(seen)
    row = settled(identifier)
    assert row.basis == "observed"
    assert 0 < (row.charged_nanousd or 0) < row.reserved_nanousd / 2


CHECKS: list[Callable[[OpenAI, str], None]] = [
    check_plain,
    check_request_ids,
    check_stream,
    check_usage_in_a_stream,
    check_cost,
    check_stream_helper,
    check_several_completions,
    check_tools,
    check_structured_answers,
    check_reasoning,
    check_errors,
    check_cancelling,
]


async def check_async(address: str, key: str, way: str) -> None:
    async with AsyncOpenAI(base_url=address, api_key=key, max_retries=0) as client:
        plain = await client.chat.completions.create(model=f"{way}/echo", messages=MESSAGES)
        stream = await client.chat.completions.create(model=f"{way}/echo", messages=MESSAGES, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        async with client.chat.completions.stream(model=f"{way}/words", messages=MESSAGES, n=2) as helper:
            final = await helper.get_final_completion()
        many = await asyncio.gather(
            *(client.chat.completions.create(model=f"{way}/echo", messages=MESSAGES) for _ in range(20))
        )

    assert plain.choices[0].message.content == text == HELLO
    assert len(final.choices) == 2
    assert {each.choices[0].message.content for each in many} == {HELLO}


def settled(identifier: str) -> Reservation:
    """The reservation of a request whose client has left, once its server has settled it."""
    return until(lambda: Reservation.objects.filter(pk=identifier).exclude(state="held").first())
