"""Credit for fifty, two hundred who ask at once, two server processes: fifty get an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import aiohttp

from billing.models import Reservation
from billing.money import usd
from organization.models import Organization
from organization.services import create_project
from tests.factories import SOMEONE
from tests.harness.live_server import live_server
from tests.inference.customer import ApiCustomer, question

ASKED, AFFORDABLE = 200, 50
REQUEST_NANOUSD, TOKEN_NANOUSD = 10_000, 1_000
BOUND = 3


async def ask_all(addresses: list[str], key: str, model: str, **fields: Any) -> Counter[int]:
    start = asyncio.Event()
    headers = {"Authorization": f"Bearer {key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def ask(number: int) -> int:
            await start.wait()
            url = f"{addresses[number % len(addresses)]}/v1/chat/completions"
            async with session.post(url, json=question(model, **fields)) as answer:
                body = await answer.read()
                is_stream = answer.status == 200 and fields.get("stream")
                assert body.endswith(b"data: [DONE]\n\n" if is_stream else b"}")
                return answer.status

        asking = [asyncio.create_task(ask(number)) for number in range(ASKED)]
        await asyncio.sleep(0)
        start.set()
        return Counter(await asyncio.gather(*asking))


def with_credit(name: str, nanousd: int) -> ApiCustomer:
    organization = Organization.objects.create(name=name)
    project, _ = create_project(organization=organization, name="Web", actor=SOMEONE)
    return ApiCustomer.of(project, credit=usd(nanousd))


def test_exactly_as_many_are_served_as_can_be_paid(
    process_environment: dict[str, str], customer: ApiCustomer
) -> None:
    # Each holds what it costs, so that no settlement makes room for another: a price by the request alone,
    # or an answer that is longer than its bound.
    nothing = {"prompt_price_picousd": 0, "completion_price_picousd": 0}
    customer.simulate("echo", **{**nothing, "request_price_picousd": REQUEST_NANOUSD * 1_000})
    customer.simulate("words", **{**nothing, "completion_price_picousd": TOKEN_NANOUSD * 1_000})
    plain = with_credit("plain", AFFORDABLE * REQUEST_NANOUSD)
    streaming = with_credit("streaming", AFFORDABLE * REQUEST_NANOUSD)
    several = with_credit("several", AFFORDABLE * 4 * BOUND * TOKEN_NANOUSD)
    with live_server(process_environment) as one, live_server(process_environment) as two:
        both = [one.address, two.address]
        statuses = [
            asyncio.run(ask_all(both, plain.value, "echo")),
            asyncio.run(ask_all(both, streaming.value, "echo", stream=True)),
            asyncio.run(ask_all(both, several.value, "words", n=4, max_tokens=BOUND, seed=1)),
        ]

    assert statuses == [{200: AFFORDABLE, 402: ASKED - AFFORDABLE}] * 3
    for customer in (plain, streaming, several):
        rows = Reservation.objects.filter(organization_id=customer.project.organization_id)
        assert rows.filter(state="settled").count() == rows.count() == AFFORDABLE
        assert customer.account.available_nanousd == 0
