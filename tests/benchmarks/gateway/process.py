"""Processes of the benchmark: where they may run, how much they use, and that they end with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.harness.live_server import ROOT

START_SECONDS = 120
STOP_SECONDS = 40
_TICKS = os.sysconf("SC_CLK_TCK")
_IS_LINUX = Path("/proc/self/smaps_rollup").exists()


def available_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []


class Pinning:
    """One core for what is measured, another for the load and what stands behind; or none for anybody."""

    def __init__(self) -> None:
        self._all = available_cores()
        self.is_possible = len(self._all) > 1
        self._is_wanted = False

    def use(self, is_wanted: bool) -> None:
        """From now on, for this process and what it starts for the load."""
        self._is_wanted = is_wanted and self.is_possible
        if self.is_possible:
            os.sched_setaffinity(0, {self._all[1]} if self._is_wanted else set(self._all))

    def cores_for_target(self) -> list[int]:
        return self._all[:1] if self._is_wanted else self._all

    def move(self, process_id: int) -> None:
        """Bring a process that is running already, with its children, to where the load is."""
        if not self.is_possible:
            return
        here = os.sched_getaffinity(0)
        for member in family(process_id):
            for thread in Path(f"/proc/{member}/task").iterdir():
                os.sched_setaffinity(int(thread.name), here)


class Server:
    """A process that listens on loopback, with what it writes in a file."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        log: Path,
        environment: Mapping[str, str] | None = None,
        cores: Sequence[int] = (),
        folder: Path = ROOT,
    ) -> None:
        self.port = port
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(os.environ if environment is None else environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
            )
        try:
            self._wait_until_it_listens()
        except RuntimeError:
            self.stop()
            raise

    def _wait_until_it_listens(self) -> None:
        until = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"It does not listen. The end of what it wrote:\n{self.last_words()}")

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def complaints(self) -> dict[str, int]:
        """What it logged as a warning or worse, and how often."""
        found: Counter[str] = Counter()
        for line in self._log.read_text(errors="replace").splitlines():
            if line.startswith('{"event"') and '"level": "info"' not in line:
                found[str(json.loads(line)["event"])[:100]] += 1
        return dict(found)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def family(process_id: int) -> list[int]:
    """The process and its descendants."""
    parents = dict(_parents())
    members = [process_id]
    for member in members:
        members.extend(child for child, parent in parents.items() if parent == member)
    return members


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(entry.name)):
            yield int(entry.name), int(fields[1])


def _stat(process_id: int) -> list[str]:
    """The fields after the name, which may itself hold spaces; nothing for a process that is gone."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(process_id: int) -> float:
    """What the process and its descendants have used so far."""
    if not _IS_LINUX:
        return 0.0
    stats = [fields for member in family(process_id) if (fields := _stat(member))]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / _TICKS


def all_cpu_seconds() -> float:
    """What the whole machine has used so far, whoever for."""
    if not _IS_LINUX:
        return 0.0
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = fields
    return (user + nice + system + interrupts + soft_interrupts + stolen) / _TICKS


def wait_until_quiet(process_ids: Sequence[int], most_seconds: float) -> None:
    """Until these have done what they do at their start, beside serving."""
    until = time.monotonic() + most_seconds
    while time.monotonic() < until:
        before = sum(cpu_seconds(process_id) for process_id in process_ids)
        time.sleep(1)
        if sum(cpu_seconds(process_id) for process_id in process_ids) - before < 0.1:
            return


def own_cpu_seconds() -> float:
    """This process and the clients that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def memory_mib(process_id: int, figure: str = "Pss") -> dict[str, float]:
    """Memory of each member of the family, by what it runs: its proportional share, or another figure."""
    if not _IS_LINUX:
        return {}
    found = {}
    for member in family(process_id):
        try:
            rollup = Path(f"/proc/{member}/smaps_rollup").read_text()
            words = Path(f"/proc/{member}/cmdline").read_text().split("\0")
        except OSError:
            continue
        share = next((line.split()[1] for line in rollup.splitlines() if line.startswith(f"{figure}:")), "0")
        found[f"{member} {_role(words)}"] = int(share) / 1024
    return found


def _role(words: Sequence[str]) -> str:
    text = " ".join(words)
    if "celery" in text:
        return "scheduled work"
    if "spawn_main" in text:
        return "worker"
    return "tracker" if "resource_tracker" in text else "main"
