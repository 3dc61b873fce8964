"""The commands that run the gateway, run."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from openai import OpenAI

from tests.e2e.process_tree import Watched, children_of, command_of
from tests.harness.live_server import ROOT, LiveServer, free_port


@pytest.fixture
def empty_home(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is set."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GATEWAY_DATA_DIR": str(tmp_path / "data"),
        "PYTHONUNBUFFERED": "1",
    }


def quickstart(environment: dict[str, str]) -> LiveServer:
    port = free_port()
    running = LiveServer([sys.executable, "manage.py", "quickstart", "--port", str(port)], environment, port)
    running.wait_until_ready()
    return running


def snippet(said: str, beginning: str) -> str:
    """The indented lines that begin so."""
    lines = said[said.index(beginning) :].splitlines()
    return textwrap.dedent(
        "\n".join(itertools.takewhile(lambda line: line.startswith("  ") or not line, lines))
    )


def paste(program: list[str], text: str) -> str:
    return subprocess.run([*program, text], capture_output=True, text=True, check=True, timeout=120).stdout


def test_quickstart_prints_what_works_when_pasted_and_comes_back(empty_home: dict[str, str]) -> None:
    """One after the other: to begin with an empty home takes longer than all the rest."""
    running = quickstart(empty_home)
    try:
        paste_what_it_prints(running)
    finally:
        status = running.stop()
    assert status == 0

    again = quickstart(empty_home)
    try:
        said = "".join(again.output)
        assert "is kept as it was" in said
        assert "gwa_" not in said
        assert "gwk_" not in said
        its_worker_ends_with_it(again)
    finally:
        again.stop()


def paste_what_it_prints(running: LiveServer) -> None:
    said = "".join(running.output)
    admin_key = re.findall(r"Admin key +(gwa_\w+)", said)[0]
    customer_key = re.findall(r"Customer key +(gwk_\w+)", said)[0]
    password = re.findall(r"password ([\w-]+)\)", said)[0]
    client = OpenAI(base_url=f"{running.address}/v1", api_key=customer_key, admin_api_key=admin_key)

    assert [key.name for key in client.admin.organization.admin_api_keys.list()] == ["quickstart"]
    assert len(password) >= 12
    curl = paste(["sh", "-c"], snippet(said, "  curl "))
    assert json.loads(curl)["choices"][0]["message"]["content"]
    assert paste([sys.executable, "-c"], snippet(said, "  from openai ")).strip()
    for page in ("/admin/login/", "/docs/", "/openapi.json", "/readyz"):
        with urlopen(Request(running.address + page)) as answer:  # noqa: S310
            assert answer.status == 200
    with urlopen(running.address + "/static/unfold/css/styles.css") as answer:  # noqa: S310
        assert len(answer.read()) > 10_000


def its_worker_ends_with_it(running: LiveServer) -> None:
    children = children_of(running.process.pid)
    assert any("celery" in command_of(each) for each in children)
    watched = [Watched(each) for each in children]

    os.kill(running.process.pid, signal.SIGKILL)  # so that the server itself cannot tidy up
    running.stop()

    for each in watched:
        each.wait_for_end()


def test_serve_refuses_a_database_that_is_not_migrated(empty_home: dict[str, str]) -> None:
    run = subprocess.run(
        [sys.executable, "manage.py", "serve"], cwd=ROOT, env=empty_home, capture_output=True, text=True
    )

    assert run.returncode == 1
    assert "run `manage.py migrate` first" in run.stderr


def test_doctor_finds_what_is_wrong(empty_home: dict[str, str]) -> None:
    def doctor(**changes: str) -> tuple[int, dict[str, bool]]:
        run = subprocess.run(
            [sys.executable, "manage.py", "doctor", "--json"],
            cwd=ROOT,
            env={**empty_home, **changes},
            capture_output=True,
            text=True,
        )
        findings = json.loads(run.stdout)["findings"]
        return run.returncode, {each["subject"]: each["is_good"] for each in findings}

    status, findings = doctor()
    assert (status, findings["database"], findings["migrations"]) == (1, True, False)
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=empty_home, check=True)
    status, findings = doctor()
    assert status == 0, findings
    status, findings = doctor(REDIS_URL="redis://127.0.0.1:1/0")
    assert (status, findings["cache"], findings["broker"], findings["database"]) == (1, False, False, True)
