"""A finished request is freed at once, and not when the garbage collector comes by."""

from __future__ import annotations

import asyncio
import gc

import pytest

from inference.serving.lifecycle.deadline import RequestTimer
from inference.serving.lifecycle.request_task import RequestTask
from tests.inference.customer import ApiCustomer
from tests.inference.serving.paced_client import Caller, run


@pytest.mark.slow
def test_no_task_and_no_timer_waits_for_the_garbage_collector(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    async def ask(stream: bool) -> None:
        caller = Caller(customer, "echo", stream=stream)
        await caller.ended()

    async def story() -> list[str]:
        await ask(False)  # what is made once is made
        gc.collect()
        gc.disable()
        try:
            for stream in (False, True):
                await ask(stream)
            await asyncio.sleep(0)  # callbacks of what has ended
            kinds = RequestTask, RequestTimer
            return [type(each).__name__ for each in gc.get_objects() if type(each) in kinds]
        finally:
            gc.enable()

    assert run(story) == []
