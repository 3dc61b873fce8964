"""The real OpenAI SDK, through the gateway, on a real model behind a real llama.cpp server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from billing.models import Reservation
from gateway_site.quickstart import llama_server
from gateway_site.quickstart import local_model as keeper
from gateway_site.quickstart.local_model import LocalModel
from tests.e2e.waiting import until
from tests.harness.live_server import free_port, live_server
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import ApiCustomer

pytestmark = [
    pytest.mark.one_database,
    pytest.mark.skipif(llama_server.missing_part() is not None, reason="the `local` extra is not installed"),
]

MODEL = llama_server.MODEL_ID
# The nearest tokenizer: the server itself says what it counted, and is asked to.
COLUMNS: dict[str, Any] = {"tokenizer": "", "context_length": 4096, "max_output_length": 512}
MESSAGES: Any = [{"role": "user", "content": "What is the capital of France?"}]


class Answer(BaseModel):
    city: str


@pytest.fixture(scope="module")
def running_model() -> Iterator[LocalModel]:
    with keeper.running(preferred_port=free_port()) as local:
        assert local.problem == ""
        yield local


def test_a_customer_uses_the_sdk(
    customer: ApiCustomer, process_environment: dict[str, str], running_model: LocalModel
) -> None:
    backend = make_backend(
        "local", "openai", base_url=running_model.base_url, options={"server": "llama.cpp"}
    )
    deploy(make_model(MODEL, **COLUMNS), backend)
    with (
        live_server(process_environment) as running,
        OpenAI(base_url=f"{running.address}/v1", api_key=customer.value, max_retries=0) as client,
    ):
        for check in (
            check_plain,
            check_stream_and_usage,
            check_stream_helper,
            check_an_option_that_it_lacks,
            check_structured_output,
            check_the_bound,
            check_errors,
            check_cancel,
        ):
            check(client)
        asyncio.run(check_async(f"{running.address}/v1", customer.value))
        until(lambda: not Reservation.objects.filter(state="held").exists(), 20)

    # Whoever left in the middle: the server was cut off before it counted, and pays for the pieces seen.
    assert not Reservation.objects.filter(state="unknown").exists()
    assert Reservation.objects.filter(basis="observed").count() == 1
    assert set(Reservation.objects.exclude(basis="").values_list("basis", flat=True)) == {"usage", "observed"}


def check_plain(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=30, temperature=0
    )
    completion = raw.parse()

    assert "Paris" in (completion.choices[0].message.content or "")
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    row = Reservation.objects.get(pk=raw.request_id)
    assert (row.state, row.basis) == ("settled", "usage")
    assert row.charged_nanousd is not None
    assert row.charged_nanousd > 0


def check_stream_and_usage(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_tokens=30,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def check_stream_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, max_tokens=30, temperature=0
    ) as stream:
        final = stream.get_final_completion()

    assert "Paris" in (final.choices[0].message.content or "")


def check_an_option_that_it_lacks(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as lacking:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2, max_tokens=12)

    assert lacking.value.status_code == 501
    assert lacking.value.param == "n"


def check_structured_output(client: OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model=MODEL, messages=MESSAGES, response_format=Answer, max_tokens=60, temperature=0
    )

    assert isinstance(parsed.choices[0].message.parsed, Answer)


def check_the_bound(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Tell a long story of a river."}], max_tokens=5
    )

    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 5


def check_errors(client: OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError):  # the server refuses it, in its own words
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "word " * 6000}], max_tokens=5
        )
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="gwk_nobody").chat.completions.create(model=MODEL, messages=MESSAGES)


def check_cancel(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Write a very long story about a river and a bridge."}],
        max_tokens=400,
        stream=True,
    )
    next(iter(stream))
    stream.close()


async def check_async(address: str, key: str) -> None:
    async with AsyncOpenAI(base_url=address, api_key=key, max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=30, temperature=0, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert "Paris" in text
