"""The short form of the benchmark: that it runs, counts right and leaves its results. No time is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.harness.live_server import ROOT

pytestmark = pytest.mark.one_database


def test_it_works(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.gateway", "--quick", "--seconds", "0.2"]
    command += ["--out", str(tmp_path)]
    # A process of its own, because it moves itself to one core.
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr

    results = json.loads((tmp_path / "results.json").read_text())
    books = results["books"]["gateway sqlite"]
    assert books["is_right"]
    assert books["settled"] == books["answered"] > 0
    assert books["reservations"] == {"settled usage": books["answered"]}
    for entry in results["one_worker"]:
        for rounds in entry["rounds"].values():
            assert [each["errors"] for each in rounds] == [{}]
            assert all(each["answered"] for each in rounds)
    names = [entry["target"] for entry in results["one_worker"]]
    assert names == ["bare upstream", "gateway sqlite", "pass-through"]
    picture = ElementTree.parse(tmp_path / "results.svg")  # noqa: S314
    assert len(picture.getroot()) > len(names)
    assert "Targets" in run.stdout
