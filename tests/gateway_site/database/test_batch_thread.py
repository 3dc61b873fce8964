"""What is submitted is processed in batches, once, and the thread is there whenever it is needed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway_site.database.batch_thread import BatchThread, deliver_in_loops

SECONDS = 5.0

FORKING = """
import os, threading
from gateway_site.database.batch_thread import BatchThread

may_go_on = threading.Event()
batches = []

def process(items):
    batches.append(items)
    may_go_on.wait()

thread = BatchThread("numbers", process, close=lambda: None)
thread.submit(1)
while not batches:
    pass
thread.submit(2)
thread._starting.acquire()
child = os.fork()
if child == 0:
    batches.clear()
    may_go_on.set()
    thread.submit(3)
    left = thread.stop(5)
    os._exit(0 if (batches, left) == ([[3]], 0) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


class Batches:
    """Remembers batches, and waits within each that it was told to wait in."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.is_closed = 0
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.react: Callable[[list[int]], None] = lambda items: None

    def process(self, items: list[int]) -> None:
        self.seen.append(items)
        self.has_begun.set()
        assert self.may_go_on.wait(SECONDS)
        self.react(items)

    def close(self) -> None:
        self.is_closed += 1

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.001)


@pytest.fixture
def batches() -> Batches:
    return Batches()


@pytest.fixture
def thread(batches: Batches) -> Iterator[BatchThread[int]]:
    made: BatchThread[int] = BatchThread("numbers", batches.process, close=batches.close, max_batch=3)
    yield made
    batches.may_go_on.set()
    made.stop(SECONDS)


def test_what_comes_during_a_batch_is_the_next_batch_up_to_its_limit(
    thread: BatchThread[int], batches: Batches
) -> None:
    batches.may_go_on.clear()
    thread.submit(1)
    assert batches.has_begun.wait(SECONDS)
    for number in range(2, 7):
        thread.submit(number)
    queued = thread.queued
    batches.may_go_on.set()

    assert thread.stop(SECONDS) == 0
    assert queued == 5
    assert batches.seen == [[1], [2, 3, 4], [5, 6]]


def test_a_stop_closes_and_the_next_item_starts_another_thread(
    thread: BatchThread[int], batches: Batches
) -> None:
    assert thread.stop(SECONDS) == 0
    assert (thread.is_running, batches.is_closed) == (False, 0)

    for number in (1, 2):
        thread.submit(number)
        assert thread.is_running
        assert thread.stop(SECONDS) == 0
        assert (thread.is_running, batches.is_closed) == (False, number)

    assert batches.seen == [[1], [2]]


def test_nobody_waits_for_what_is_to_be_retried(thread: BatchThread[int], batches: Batches) -> None:
    batches.react = lambda items: thread.retry_later(items, 0.2) if batches.seen == [[1]] else None
    thread.submit(1)
    batches.until(lambda: bool(thread.backlog))
    thread.submit(2)
    batches.until(lambda: len(batches.seen) == 3)

    assert batches.seen == [[1], [2], [1]]


def test_what_is_to_be_retried_comes_first_in_its_batch(thread: BatchThread[int], batches: Batches) -> None:
    def retry_at_once(items: list[int]) -> None:
        if items == [1]:
            thread.submit(2)
            thread.retry_later(items, 0.0)

    batches.react = retry_at_once
    thread.submit(1)
    batches.until(lambda: len(batches.seen) == 2)

    assert batches.seen == [[1], [1, 2]]


@pytest.mark.slow
def test_what_cannot_be_done_before_the_stop_is_counted(thread: BatchThread[int], batches: Batches) -> None:
    batches.react = lambda items: thread.retry_later(items, 0.01)
    thread.submit(1)
    batches.until(lambda: len(batches.seen) > 1)

    assert thread.stop(0.05) == 1
    batches.react = lambda items: None
    thread.submit(2)
    assert thread.stop(SECONDS) == 0
    assert batches.seen[-1] in ([1, 2], [1])


def test_a_batch_that_fails_is_reported_and_does_not_end_the_work(
    thread: BatchThread[int], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(items: list[int]) -> None:
        raise ValueError("no such number")

    reported: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: reported.append(str(failure.exc_value)))
    batches.react = fail
    thread.submit(1)
    batches.until(lambda: bool(reported))
    batches.react = lambda items: None
    thread.submit(2)

    assert thread.stop(SECONDS) == 0
    assert (batches.seen, batches.is_closed) == ([[1], [2]], 2)
    assert reported == ["no such number"]


def test_a_thread_that_cannot_be_started_is_started_by_the_next_item(
    thread: BatchThread[int], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_start(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short_of_memory:
        short_of_memory.setattr(threading.Thread, "start", cannot_start)
        thread.submit(1)
    assert not thread.is_running
    thread.submit(2)

    assert thread.stop(SECONDS) == 0
    assert batches.seen == [[1, 2]]


def test_a_forked_child_begins_with_nothing() -> None:
    """The parent is in a batch, has one item queued, and holds the lock under which threads are started."""
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=30)

    assert done.stdout.strip() == "0", done.stderr


def test_each_loop_is_called_once_and_what_a_closed_one_misses_comes_back() -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    delivered: list[list[str]] = []

    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        undelivered = deliver_in_loops([(loop, "a"), (closed, "b"), (loop, "c")], delivered.append)
        await asyncio.sleep(0)
        return undelivered

    assert asyncio.run(run()) == ["b"]
    assert delivered == [["a", "c"]]
