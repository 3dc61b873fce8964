"""
Django's cache as this project uses it: for counting requests, in Redis where one is configured.

A Redis that is away, frozen or out of reach costs the requests of one moment a tenth of a second. Then the
circuit breaker is open: nobody asks it but one thread, the process counts for itself, and the log says so
once a minute. No request fails for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from gateway_site.api.rest_rate_limits import counters

logger = logging.getLogger(__name__)

SOCKET_SECONDS = 0.1
PROBE_SECONDS = 0.5
LOG_SECONDS = 60.0
# Of keys that exist; LocMemCache's own default would be 300.
MAX_LOCAL_ENTRIES = 100_000

Value = TypeVar("Value")


class RedisUnavailable(Exception):
    """Redis does not answer, or is known not to."""


class SharedRedis:
    """One Redis and its circuit breaker. The process has one; it is safe to use from any thread."""

    def __init__(self, url: str, parameters: dict[str, Any]) -> None:
        options = {
            "socket_timeout": SOCKET_SECONDS,
            "socket_connect_timeout": SOCKET_SECONDS,
            "retry": Retry(NoBackoff(), 0),
        }
        self._cache = RedisCache(url, {**parameters, "OPTIONS": options})
        self._is_open = False
        self._lock = threading.Lock()
        self._prober: threading.Thread | None = None
        self._logged_at = float("-inf")

    def run(self, command: Callable[[RedisCache], Value]) -> Value:
        """Run a command in Redis, or raise RedisUnavailable where it does not answer."""
        if self._is_open:
            self._log()
            raise RedisUnavailable("Redis does not answer")
        try:
            return command(self._cache)
        except (RedisError, OSError) as error:
            self._open()
            raise RedisUnavailable(f"Redis does not answer: {type(error).__name__}") from error

    def _open(self) -> None:
        with self._lock:
            self._is_open = True
            # A thread does not survive a fork, and is seen as dead in the child.
            if self._prober is None or not self._prober.is_alive():
                self._prober = threading.Thread(target=self._probe, name="redis-probe", daemon=True)
                self._prober.start()
        self._log()

    def _probe(self) -> None:
        while True:
            time.sleep(PROBE_SECONDS)
            try:
                self._cache.has_key("probe")
            except (RedisError, OSError):
                continue
            with self._lock:
                self._prober, self._is_open = None, False
            logger.warning("Redis answers again; limits are counted across processes")
            return

    def _log(self) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            logger.error("Redis does not answer; limits are counted by this process alone")


_shared: dict[str, SharedRedis] = {}


class LimitCache(BaseCache):
    """The cache for rate limits, in the Redis at LOCATION; without one, each process has its own."""

    def __init__(self, location: str, parameters: dict[str, Any]) -> None:
        super().__init__(parameters)
        bounded = {**parameters, "OPTIONS": {"MAX_ENTRIES": MAX_LOCAL_ENTRIES}}
        self._local = LocMemCache("limits", bounded)
        self.shared: SharedRedis | None = None
        if location:
            # Django makes a cache for each thread; a connection for each would be made for each request.
            if location not in _shared:
                _shared.setdefault(location, SharedRedis(location, parameters))
            self.shared = _shared[location]

    def count(self, group: str, name: str, *, limit: int, seconds: int) -> int:
        """Count one under this name, of a window of so many seconds. Returns how many there are now."""

        def in_redis(redis: RedisCache) -> int:
            redis.add(name, 0, timeout=seconds)
            return int(redis.incr(name))

        if self.shared is not None:
            try:
                return self.shared.run(in_redis)
            except (RedisUnavailable, ValueError):  # it does not answer, or the window ended between the two
                pass
        return counters.store_of(group).count(name, limit=limit, seconds=seconds)

    def take_back(self, group: str, name: str) -> None:
        """Take one back under this name, if it is still counted."""
        if self.shared is not None:
            try:
                self.shared.run(lambda redis: redis.decr(name))
                return
            except (RedisUnavailable, ValueError):
                pass
        counters.store_of(group).take_back(name)

    # --- as Django has it --------------------------------------------------------------------------

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return bool(self._either(lambda cache: cache.add(key, value, timeout, version)))

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        return self._either(lambda cache: cache.get(key, default, version))

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        self._either(lambda cache: cache.set(key, value, timeout, version))

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return bool(self._either(lambda cache: cache.touch(key, timeout, version)))

    def delete(self, key: Any, version: int | None = None) -> bool:
        return bool(self._either(lambda cache: cache.delete(key, version)))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        if self.shared is not None:
            try:
                return int(self.shared.run(lambda redis: redis.incr(key, delta, version)))
            except RedisUnavailable:
                # It may have been there a moment ago, when the key was added to it and not here.
                self._local.add(key, 0, version=version)
            except ValueError:
                if not self._local.has_key(key, version):
                    raise
                # It was away when the key was added, and is back.
        return int(self._local.incr(key, delta, version))

    def clear(self) -> None:
        self._local.clear()
        counters.clear()
        if self.shared is not None:
            try:
                self.shared.run(lambda redis: redis.clear())
            except RedisUnavailable as problem:
                logger.warning("the cache was cleared in this process alone: %s", problem)

    def _either(self, command: Callable[[BaseCache], Value]) -> Value:
        if self.shared is not None:
            try:
                return self.shared.run(command)
            except RedisUnavailable:
                pass
        return command(self._local)
