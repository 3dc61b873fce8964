"""The clock is set by an hour, forward and back, while streams are under way."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from django.db.models import F

from billing.models import KeyMeter, Reservation
from billing.prices.bill import charge
from billing.prices.price import Quantities
from tests.e2e.streams.reader import SHORT_LEASES, Reader, is_complete
from tests.harness.live_server import live_server
from tests.inference.customer import ApiCustomer, records
from tests.inference.serving.expected_usage import PRICE

STREAMS = 4


def set_clock(hours: int) -> None:
    """What is stored is as far from the time as if the clock of the database had been set by so much."""
    step = timedelta(hours=hours)
    held = Reservation.objects.filter(state="held")
    assert held.count() == STREAMS
    held.update(lease_expires_at=F("lease_expires_at") - step, deadline_at=F("deadline_at") - step)
    KeyMeter.objects.update(window_starts_at=F("window_starts_at") - step)


def test_a_step_of_the_clock_ends_no_stream_and_locks_no_key(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    customer.simulate("paced-250x20")
    # Each round spends the minute of its clock.
    settings = {**SHORT_LEASES, "GATEWAY_REQUESTS_PER_MINUTE": str(STREAMS)}

    async def stream_through(hours: int) -> list[bytes]:
        reading = await Reader(running, customer.value, "paced-250x20").start(STREAMS)
        await asyncio.to_thread(set_clock, hours)
        return await asyncio.gather(*reading)

    bodies = []
    with live_server(process_environment, settings=settings, has_scheduled_work=True) as running:
        for hours in (1, -1, 0):
            bodies += asyncio.run(stream_through(hours))

    assert all(map(is_complete, bodies)), bodies
    reported = [records(body)[-2]["usage"] for body in bodies]
    used = [
        Quantities(prompt=each["prompt_tokens"], completion=each["completion_tokens"]) for each in reported
    ]
    ends = Reservation.objects.values_list("state", "basis", "charged_nanousd")
    assert sorted(ends) == sorted(("settled", "usage", charge(PRICE, each)) for each in used)
    assert "lost its hold" not in "".join(running.output)
