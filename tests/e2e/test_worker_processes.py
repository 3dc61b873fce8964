"""`serve --workers N`, while one of its processes is killed or stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import aiohttp
from django.db import connection

from billing.models import Reservation
from gateway_site.server.uvicorn_server import require_free_port
from tests.e2e.process_tree import Watched, children_of, command_of, workers_of
from tests.e2e.streams.reader import SHORT_LEASES, Reader, is_complete
from tests.e2e.waiting import until
from tests.harness.live_server import ROOT, LiveServer, free_port, live_server
from tests.inference.customer import ApiCustomer

STREAMS = 8


async def health(running: LiveServer) -> int:
    timeout = aiohttp.ClientTimeout(total=10)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"{running.address}/healthz") as answer,
    ):
        return answer.status


def wait_for_workers(running: LiveServer, count: int) -> list[int]:
    return until(lambda: found if len(found := workers_of(running.process.pid)) == count else None, 30)


def test_workers_drain_and_end_when_their_parent_is_killed(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    customer.simulate("paced-60x20")

    async def kill_the_parent(running: LiveServer) -> list[bytes]:
        reading = await Reader(running, customer.value, "paced-60x20").start(STREAMS)
        running.process.kill()
        return await asyncio.gather(*reading)

    with live_server(process_environment, workers=2, has_scheduled_work=True) as running:
        wait_for_workers(running, 2)
        until(lambda: [each for each in children_of(running.process.pid) if "celery" in command_of(each)])
        family = [Watched(each) for each in children_of(running.process.pid)]
        bodies = asyncio.run(kill_the_parent(running))
        for each in family:
            each.wait_for_end()

        require_free_port("127.0.0.1", running.port)  # for whoever is started next
    assert all(map(is_complete, bodies))
    assert Reservation.objects.filter(state="settled", basis="usage").count() == STREAMS


def test_a_worker_that_dies_or_hangs_costs_its_own_requests_and_is_replaced(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    customer.simulate("paced-60x20")
    # A worker stopped within a transaction keeps SQLite's only lock: there, several are at its mercy.
    blows = [signal.SIGKILL] if connection.vendor == "sqlite" else [signal.SIGKILL, signal.SIGSTOP]

    async def strike(running: LiveServer, worker: int, blow: signal.Signals) -> list[bytes]:
        reading = await Reader(running, customer.value, "paced-60x20").start(STREAMS)
        os.kill(worker, blow)
        assert [await health(running) for _ in range(20)] == [200] * 20
        others = await Reader(running, customer.value, "paced-60x20").start(2)
        assert all(map(is_complete, await asyncio.gather(*others)))
        return [*await asyncio.gather(*reading), *await asyncio.gather(*others)]

    bodies = []
    with live_server(process_environment, workers=2, settings=SHORT_LEASES) as running:
        for blow in blows:
            before = wait_for_workers(running, 2)
            bodies += asyncio.run(strike(running, before[1], blow))
            until(lambda: {*workers_of(running.process.pid)} - {*before}, 30)  # noqa: B023
            assert before[0] in workers_of(running.process.pid)
        until(lambda: not Reservation.objects.filter(state="held").exists(), 30)
    complete = [body for body in bodies if is_complete(body)]
    assert Reservation.objects.filter(state="settled", basis="usage").count() == len(complete)
    # Whatever was cut off was swept.
    assert Reservation.objects.exclude(basis="usage").count() == len(bodies) - len(complete)


def test_a_server_that_was_frozen_past_its_leases_settles_nothing_twice(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    customer.simulate("paced-60x20")

    async def freeze(frozen: LiveServer) -> list[bytes]:
        reading = await Reader(frozen, customer.value, "paced-60x20").start(STREAMS)
        frozen.process.send_signal(signal.SIGSTOP)
        held = Reservation.objects.filter(state="held")
        await asyncio.to_thread(until, lambda: not held.exists(), 30)
        frozen.process.send_signal(signal.SIGCONT)
        return await asyncio.gather(*reading)

    with (
        live_server(process_environment, settings=SHORT_LEASES) as frozen,
        live_server(process_environment, settings=SHORT_LEASES),
    ):
        bodies = asyncio.run(freeze(frozen))
        assert all(map(is_complete, bodies))
        assert frozen.stop() == 0
    ends = Reservation.objects.values_list("state", "basis")
    assert len(ends) == STREAMS
    # Swept as it stood; or, where nothing was known yet, reconciled by the settlement that came late.
    assert {*ends} <= {("settled", "checkpoint"), ("settled", "reconciled")}


def test_a_second_sigterm_and_a_worker_that_hangs_do_not_keep_the_server_from_stopping(
    process_environment: dict[str, str],
) -> None:
    program = (
        "import sys; from gateway_site.server import stop_with_parent as watch; watch.CLEAN_UP_SECONDS = 2;"
        "from django.core.management import execute_from_command_line as run;"
        "run(['manage.py', 'serve', '--workers', '2', '--port', sys.argv[1]])"
    )
    port = free_port()
    environment = {
        **process_environment,
        "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
        "CELERY_BROKER_URL": "memory://",
        "GATEWAY_DRAIN_SECONDS": "1",
    }
    running = LiveServer([sys.executable, "-c", program, str(port)], environment, port)
    try:
        running.wait_until_ready()
        family = [Watched(each) for each in wait_for_workers(running, 2)]
        os.kill(family[0].process_id, signal.SIGSTOP)
        running.process.send_signal(signal.SIGTERM)
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(30) == 0
        for each in family:
            each.wait_for_end()
    finally:
        running.stop()


def test_a_second_server_is_refused_the_port_and_interrupting_the_first_twice_ends_it(
    process_environment: dict[str, str],
) -> None:
    with live_server(process_environment, has_scheduled_work=True) as running:
        family = [Watched(each) for each in children_of(running.process.pid)]
        second_on_its_port(running, process_environment)

        for _ in range(2):
            os.killpg(running.process.pid, signal.SIGINT)

        assert running.process.wait(30) == 0
        for each in family:
            each.wait_for_end()


def second_on_its_port(running: LiveServer, environment: dict[str, str]) -> None:
    command = [sys.executable, "manage.py", "serve", "--port", str(running.port)]
    second = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    assert second.returncode == 1
    assert f"Cannot listen on 127.0.0.1:{running.port}: Address already in use." in second.stderr
    assert "Traceback" not in second.stderr
