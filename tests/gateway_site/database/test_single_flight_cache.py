"""A value is read once for all who need it at a time, and again when it is too old."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from asgiref.sync import async_to_sync

from gateway_site.database.single_flight_cache import SingleFlightCache


class Reader:
    """Gives the number of the reading, after a turn of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def read(self) -> int:
        self.count += 1
        number = self.count
        await asyncio.sleep(0)
        return number


def test_a_value_is_read_again_when_it_is_as_old_as_it_may_be() -> None:
    now = [10.0]
    reader = Reader()
    cache: SingleFlightCache[str, int] = SingleFlightCache(1.0, clock=lambda: now[0])
    get = async_to_sync(partial(cache.get, load=reader.read))

    assert [get("a"), get("a"), get("b")] == [1, 1, 2]
    now[0] += 0.999
    assert get("a") == 1
    now[0] += 0.001
    assert get("a") == 3


def test_the_age_counts_from_the_beginning_of_the_reading() -> None:
    now = [10.0]
    cache: SingleFlightCache[str, float] = SingleFlightCache(1.0, clock=lambda: now[0])

    async def read_for_a_second() -> float:
        began_at = now[0]
        now[0] += 1.0
        return began_at

    get = async_to_sync(partial(cache.get, load=read_for_a_second))

    assert [get("a"), get("a")] == [10.0, 11.0]


def test_many_who_come_at_once_share_one_reading() -> None:
    reader = Reader()
    cache: SingleFlightCache[str, int] = SingleFlightCache(1.0)

    async def crowd() -> list[int]:
        one = asyncio.create_task(cache.get("a", reader.read))
        others = [asyncio.create_task(cache.get("a", reader.read)) for _ in range(50)]
        await asyncio.sleep(0)
        one.cancel()  # the client who came first leaves
        return await asyncio.gather(*others)

    assert async_to_sync(crowd)() == [1] * 50
    assert reader.count == 1


def test_another_event_loop_does_not_wait_for_a_reading_of_this_one() -> None:
    reader = Reader()
    cache: SingleFlightCache[str, int] = SingleFlightCache(1.0)
    abandoned = asyncio.new_event_loop()
    waiting = abandoned.create_task(cache.get("a", reader.read))
    abandoned.call_soon(abandoned.stop)
    abandoned.run_forever()

    assert asyncio.run(cache.get("a", reader.read)) == 1

    abandoned.run_until_complete(waiting)
    abandoned.close()


def test_a_reading_that_failed_is_not_remembered() -> None:
    answers: list[OSError | str] = [OSError("down"), "up"]

    async def read() -> str:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    cache: SingleFlightCache[str, str] = SingleFlightCache(1.0)
    get = async_to_sync(partial(cache.get, load=read))

    with pytest.raises(OSError, match="down"):
        get("a")
    assert get("a") == "up"


def test_asking_for_what_nobody_has_does_not_fill_the_memory() -> None:
    reader = Reader()
    cache: SingleFlightCache[int, int] = SingleFlightCache(1.0, max_entries=10)

    for number in range(100):
        async_to_sync(cache.get)(number, reader.read)

    assert len(cache) <= 10


def test_a_value_that_was_cleared_is_read_again() -> None:
    reader = Reader()
    cache: SingleFlightCache[str, int] = SingleFlightCache(3_600)
    get = async_to_sync(partial(cache.get, load=reader.read))

    first = get("a")
    cache.clear()

    assert (first, get("a")) == (1, 2)
