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
# psycopg takes no shorter one. Whoever waits for the probe has a deadline of their own.
PROBE_CONNECT_SECONDS = 2
PROBE_STATEMENT_SECONDS = 2.0
# What a server says while it does not serve yet, or no longer; any other refusal shows that it lives.
NOT_SERVING = ("starting up", "shutting down", "not yet accepting", "recovery")


class DatabaseUnavailable(psycopg.OperationalError):
    """The server does not answer, so nothing was sent or the answer was not waited for any longer."""


class DatabaseCircuitBreaker:
    """
    The circuit breaker for one server, shared by all connections of the process.

    `record_answer` is called whenever the server answered anything. A wait that goes on for long asks
    `is_unresponsive`, which never blocks: it starts a probe in a thread of its own and says what is known.
    """

    def __init__(self) -> None:
        self.is_open = False
        # Counts outages. A connection that was made before the last one is not used again.
        self.outages = 0
        # Idle connections over which nothing has come since are not used again either.
        self.distrusted_at = float("-inf")
        self.parameters: dict[str, Any] = {}
        self._answered_at = 0.0
        self._probe_began_at: float | None = None
        self._prober: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def silence_seconds(self) -> float:
        """How long an answer may take before the server is probed, and then how long the probe may take."""
        return float(settings.GATEWAY_DATABASE_WAIT_SECONDS) / 2

    def record_answer(self) -> None:
        self._answered_at = time.monotonic()

    def require_closed(self) -> None:
        if self.is_open:
            raise DatabaseUnavailable("the database server does not answer")

    def is_unresponsive(self) -> bool:
        if self.is_open:
            return True
        now = time.monotonic()
        if now - self._answered_at < self.silence_seconds:
            return False
        self._ensure_prober()
        began_at = self._probe_began_at
        if began_at is not None and now - began_at > self.silence_seconds:
            self._open()
        return self.is_open

    def record_failed_connect(self, error: psycopg.OperationalError) -> None:
        """Open the circuit, unless the server itself refused the connection: nobody else need try."""
        if is_answer(error):
            self.record_answer()
        else:
            self._open()
            self._ensure_prober()

    def distrust_idle_connections(self) -> None:
        """Give up idle connections after one of them was not answered, without trying each."""
        self.distrusted_at = time.monotonic()
        self._ensure_prober()

    def _open(self) -> None:
        with self._lock:
            if self.is_open:
                return
            self.is_open = True
            self.outages += 1
        logger.error("the database server does not answer; requests are refused until it does")

    def _close(self) -> None:
        self.record_answer()
        if self.is_open:
            self.is_open = False
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
    """A connection for the probe, which ends its own waits after PROBE_STATEMENT_SECONDS."""

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
                    raise DatabaseUnavailable("the probe was not answered")
                state = gen.send(ready or 0)
        except StopIteration as done:
            return done.value


def is_answer(error: psycopg.OperationalError) -> bool:
    """Whether a failed connect shows a server that lives: it refused by itself, as with too many clients."""
    text = str(error)
    return "FATAL" in text and not any(words in text for words in NOT_SERVING)


_circuit_breakers: dict[tuple[str, str], DatabaseCircuitBreaker] = {}


def circuit_breaker_for(parameters: dict[str, Any]) -> DatabaseCircuitBreaker:
    """The circuit breaker of the server that these connection parameters name."""
    address = (str(parameters.get("host", "")), str(parameters.get("port", "")))
    breaker = _circuit_breakers.setdefault(address, DatabaseCircuitBreaker())
    breaker.parameters = parameters
    return breaker
