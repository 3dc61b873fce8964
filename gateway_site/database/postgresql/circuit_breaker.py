"""Whether a PostgreSQL server answers at all: the circuit breaker of every connection to it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import psycopg
from django.conf import settings

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.25
# psycopg takes no shorter one. Whoever waits for the probe looks at their own clock.
PROBE_CONNECT_SECONDS = 2
PROBE_STATEMENT_SECONDS = 2.0
# What a server says while it does not serve yet, or no longer; any other refusal shows that it lives.
NOT_SERVING = ("starting up", "shutting down", "not yet accepting", "recovery")


class ServerAway(psycopg.OperationalError):
    """The server does not answer, so nothing was asked or the answer was not waited for any longer."""


class ServerWatch:
    """
    The circuit breaker for one server, shared by all connections of the process.

    `heard` is called whenever the server answered anything. A wait that goes on for long asks `is_silent`,
    which never blocks: it starts a probe in a thread of its own and says what is known by now.
    """

    def __init__(self) -> None:
        self.is_away = False
        # Counts outages. A connection that was made before the last one is not used again.
        self.outages = 0
        # Idle connections over which nothing has come since are not used again either.
        self.distrusted_at = float("-inf")
        self.parameters: dict[str, Any] = {}
        self._heard_at = 0.0
        self._probe_began_at: float | None = None
        self._prober: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def silence_seconds(self) -> float:
        """How long an answer may take before the server is probed, and then how long the probe may take."""
        return float(settings.GATEWAY_DATABASE_WAIT_SECONDS) / 2

    def heard(self) -> None:
        self._heard_at = time.monotonic()

    def require_answering(self) -> None:
        if self.is_away:
            raise ServerAway("the database server does not answer")

    def is_silent(self) -> bool:
        if self.is_away:
            return True
        now = time.monotonic()
        if now - self._heard_at < self.silence_seconds:
            return False
        self._ensure_prober()
        began_at = self._probe_began_at
        if began_at is not None and now - began_at > self.silence_seconds:
            self._open()
        return self.is_away

    def note_failed_connect(self, error: psycopg.OperationalError) -> None:
        """A connection could not be made. Unless the server itself refused it, nobody else need try."""
        if is_answer(error):
            self.heard()
        else:
            self._open()
            self._ensure_prober()

    def distrust_idle_connections(self) -> None:
        """One was not answered: others that were silent until now need not be tried one by one."""
        self.distrusted_at = time.monotonic()
        self._ensure_prober()

    def _open(self) -> None:
        with self._lock:
            if self.is_away:
                return
            self.is_away = True
            self.outages += 1
        logger.error("the database server does not answer; requests are refused until it does")

    def _close(self) -> None:
        self.heard()
        if self.is_away:
            self.is_away = False
            logger.warning("the database server answers again")

    def _ensure_prober(self) -> None:
        with self._lock:
            # A thread does not survive a fork, and is seen as dead in the child.
            if self._prober is None or not self._prober.is_alive():
                self._probe_began_at = time.monotonic()
                self._prober = threading.Thread(target=self._probe, name="database-probe", daemon=True)
                self._prober.start()

    def _probe(self) -> None:
        while True:
            self._probe_began_at = time.monotonic()
            does_answer = self._answers()
            self._probe_began_at = None
            if does_answer:
                self._close()
                return
            self._open()
            time.sleep(RETRY_SECONDS)

    def _answers(self) -> bool:
        parameters = {**self.parameters, "connect_timeout": PROBE_CONNECT_SECONDS, "autocommit": True}
        try:
            with ProbeConnection.connect(**parameters) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError as error:
            return is_answer(error)
        return True


class ProbeConnection(psycopg.Connection[Any]):
    """Ends its own waits; the server has nobody else to be measured by."""

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        return super().wait(self._bounded(gen), *args, **options)

    def _bounded(self, gen: Any) -> Any:
        until = time.monotonic() + PROBE_STATEMENT_SECONDS
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > until:
                    self.close()
                    raise ServerAway("the probe was not answered")
                state = gen.send(ready or 0)
        except StopIteration as done:
            return done.value


def is_answer(error: psycopg.OperationalError) -> bool:
    """Whether a failed connect shows a server that lives: it refused by itself, as with too many clients."""
    said = str(error)
    return "FATAL" in said and not any(words in said for words in NOT_SERVING)


_watches: dict[tuple[str, str], ServerWatch] = {}


def watch_of(parameters: dict[str, Any]) -> ServerWatch:
    """The watch of the server that these connection parameters name."""
    place = (str(parameters.get("host", "")), str(parameters.get("port", "")))
    watch = _watches.setdefault(place, ServerWatch())
    watch.parameters = parameters
    return watch
