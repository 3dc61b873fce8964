"""The Celery worker that `serve` runs where no broker is configured, killed and given damaged files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.ledger.ledger import close_ledger, get_ledger
from billing.ledger.operations import Hold
from billing.models import Reservation
from gateway_site.celery_app import app
from gateway_site.server.schedule import Scheduler
from gateway_site.server.uvicorn_server import celery_worker_command
from tests.billing.factories import make_customer
from tests.e2e.waiting import until
from tests.harness.live_server import ROOT

KILLS = int(os.environ.get("CELERY_KILLS", "3"))


@contextmanager
def celery_worker(environment: dict[str, str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("ab") as log:
        process = subprocess.Popen(
            celery_worker_command(), cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def abandoned_hold() -> Hold:
    """A hold whose process is gone, for the schedule's sweep to find."""
    customer = make_customer(credit=1_000)
    hold = get_ledger().call(customer.request(100))
    assert isinstance(hold, Hold)
    close_ledger(5)
    Reservation.objects.filter(pk=hold.id).update(lease_expires_at=timezone.now() - timedelta(minutes=1))
    return hold


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_again_and_again_among_damaged_files_goes_on_working(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "celery"
    for place in ("messages/1_torn.celery.msg", "messages/2_empty.celery.msg", "control/celery.exchange"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(b'{"body": "W1' if "torn" in place else b"")
    for suffix in ("", ".dat", ".dir", ".db"):
        (folder / f"beat-schedule{suffix}").write_bytes(os.urandom(100))
    environment = {
        **process_environment,
        "GATEWAY_DATA_DIR": str(tmp_path / "data"),
        "GATEWAY_SWEEP_SECONDS": "1",
        "GATEWAY_LEASE_SECONDS": "1",
        "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
    }
    output = tmp_path / "output"
    for _ in range(KILLS):
        with celery_worker(environment, output) as worker:
            hold = abandoned_hold()
            until(lambda: Reservation.objects.get(pk=hold.id).state == "unknown", 30)  # noqa: B023
            worker.send_signal(signal.SIGKILL)
            worker.wait()

    said = output.read_text()
    assert "CRITICAL" not in said.upper(), said
    assert "Traceback" not in said, said


def test_the_schedule_goes_on_when_the_clock_is_set_back() -> None:
    scheduler = Scheduler(app=app)
    scheduler.populate_heap()
    sent: list[str] = []
    scheduler.apply_entry = lambda entry, producer=None: sent.append(entry.name)
    for entry in scheduler.schedule.values():
        entry.last_run_at += timedelta(hours=7)

    scheduler.tick()

    assert all(entry.last_run_at <= entry.default_now() for entry in scheduler.schedule.values())
    heap: Any = scheduler._heap
    soonest = min(event.time for event in heap)
    assert soonest - timezone.now().timestamp() <= 60


def test_what_is_due_every_few_hours_runs_soon_after_the_start() -> None:
    scheduler = Scheduler(app=app)

    waits = {name: entry.is_due().next for name, entry in scheduler.schedule.items()}

    assert max(waits.values()) <= 300
    assert "audit-ledger" in waits


def test_a_task_sent_without_a_broker_runs_where_it_is_sent(tmp_path: Path) -> None:
    program = (
        "import django; django.setup()\n"
        "from gateway_site.celery_app import app\n"
        "def shout(): print('done')\n"
        "app.task(shout).delay()\n"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "GATEWAY_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
    }
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    assert run.stdout.strip() == "done", run.stderr
