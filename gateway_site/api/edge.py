"""What is refused before routing, and the last resort when nothing else answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from django.conf import settings

from gateway_site.api import envelope
from gateway_site.api.bodies.size_limits import body_limit_bytes
from gateway_site.api.errors import ApiError, BodyTooLarge, InvalidRequest, Unavailable
from gateway_site.api.exception_handler import to_api_error
from gateway_site.api.hosts import is_host_allowed
from gateway_site.api.protocol_errors import DisallowedHost

logger = logging.getLogger(__name__)

# After a refusal the client may still be sending. Reading on lets it see the answer, where a closed socket
# would look like a network failure that its SDK repeats. A simple client reads nothing before it has sent
# everything: one that is not far above the limit can.
LINGER_BYTES = 1024 * 1024
LINGER_SECONDS = 10
LAST_RECORD_SECONDS = 2

ErrorRecord = Callable[[ApiError], bytes]


def begin_stream(scope: Any, error_record: ErrorRecord) -> None:
    """From here on, whatever escapes the application ends its answer with this record."""
    answer: WatchedAnswer = scope["answer"]
    answer.error_record = error_record


class EdgeMiddleware:
    """ASGI layer under the request id: the host, the body's size and time, an envelope for what escapes."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # daphne takes this from a client's header, and Django would route by what is left of the path.
        answer = WatchedAnswer(send)
        scope = {**scope, "root_path": "", "answer": answer}
        body = CountedBody(receive, body_limit_bytes(scope["path"]))
        body.refuse_announced(scope)
        if not is_host_allowed(scope):
            body.refusal = DisallowedHost()
        try:
            if body.refusal is None:
                await self.app(scope, body.receive, answer.send)
        except Exception as exc:
            # One of the project's two broad handlers: the client gets the envelope, the log the traceback.
            if answer.error_record is not None:
                await self._end_stream(send, answer.error_record(to_api_error(exc)))
            elif answer.has_begun:
                logger.error("failed after the answer had begun", exc_info=exc)
                raise
            else:
                await self._refuse(scope, body, send, to_api_error(exc))
        else:
            if body.refusal is not None and not answer.has_begun:
                await self._refuse(scope, body, send, body.refusal)
        finally:
            arriving.forget(body)

    async def _end_stream(self, send: Any, last_record: bytes) -> None:
        # A client that reads nothing does not get to read this either.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_RECORD_SECONDS):
                await send({"type": "http.response.body", "body": last_record})

    async def _refuse(self, scope: Any, body: CountedBody, send: Any, error: ApiError) -> None:
        status, headers, content = envelope.render(error, path=scope["path"])
        if not body.is_complete:
            headers["Connection"] = "close"
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await body.discard_rest()
        await send({"type": "http.response.body", "body": b""})


class ArrivingBodies:
    """
    The bodies that a process has received in part, with the bytes of each.

    Together they may hold GATEWAY_BODY_QUEUE_BYTES. Above that, one that grows is refused if it is no smaller
    than the others are on average: many large ones are, and a small one among them is not.
    """

    def __init__(self) -> None:
        self._bytes: dict[CountedBody, int] = {}
        self._total_bytes = 0

    def add(self, body: CountedBody, more_bytes: int) -> None:
        own_bytes = self._bytes[body] = self._bytes.get(body, 0) + more_bytes
        self._total_bytes += more_bytes
        is_over = self._total_bytes > settings.GATEWAY_BODY_QUEUE_BYTES
        if is_over and own_bytes * len(self._bytes) >= self._total_bytes:
            self.forget(body)
            raise Unavailable("Too many large bodies are arriving at once. Try again.")

    def forget(self, body: CountedBody) -> None:
        self._total_bytes -= self._bytes.pop(body, 0)


arriving = ArrivingBodies()


class CountedBody:
    """
    A request's body on its way in: not too large, not too slow, and not too many at once.

    Once refused, the application is told that the client hung up. It then tidies away what it has read
    and answers nothing, where an exception out of `receive` would leave its temporary file open.
    """

    def __init__(self, receive: Any, limit_bytes: int) -> None:
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._seen_bytes = 0
        # Until when the whole body must be there; set once the first piece has to be waited for.
        self._until: float | None = None
        self.is_complete = False
        self.refusal: ApiError | None = None

    def refuse_announced(self, scope: Any) -> None:
        """Refuse what says that it is too large, before a byte of it is read."""
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        # The server has checked that it is a number; a comma-joined repetition would not be one.
        if announced.isdigit() and int(announced) > self._limit_bytes:
            self.refusal = BodyTooLarge(self._limit_bytes)

    async def receive(self) -> Any:
        if self.is_complete:
            return await self._receive()  # waits for the client to hang up, for as long as that takes
        try:
            message = await at_once_or_until(self._deadline, self._receive())
        except TimeoutError:
            limit_seconds = settings.GATEWAY_BODY_TIMEOUT_SECONDS
            self.refusal = InvalidRequest(f"The body did not arrive within {limit_seconds} seconds.")
            return {"type": "http.disconnect"}
        self._count(message)
        if self._seen_bytes > self._limit_bytes:
            self.refusal = BodyTooLarge(self._limit_bytes)
            return {"type": "http.disconnect"}
        if self.is_complete:
            arriving.forget(self)
        else:
            try:
                arriving.add(self, len(message.get("body", b"")))
            except Unavailable as refusal:
                self.refusal = refusal
                return {"type": "http.disconnect"}
        return message

    def _deadline(self) -> float:
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + settings.GATEWAY_BODY_TIMEOUT_SECONDS
        return self._until

    async def discard_rest(self) -> None:
        """Read on for a while, keeping nothing."""
        until_bytes = self._limit_bytes + LINGER_BYTES
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while not self.is_complete and self._seen_bytes < until_bytes:
                    self._count(await self._receive())
        except TimeoutError:
            return

    def _count(self, message: Any) -> None:
        self._seen_bytes += len(message.get("body", b""))
        self.is_complete = message["type"] != "http.request" or not message.get("more_body", False)


async def at_once_or_until(deadline: Callable[[], float], work: Coroutine[Any, Any, Any]) -> Any:
    """
    What the coroutine returns, or TimeoutError.

    It is begun before a clock is set: a body that came along with its head is there at once, as nearly all
    are, and the clock costs more than reading it.
    """
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return done.value
    async with asyncio.timeout_at(deadline()):
        return await _go_on(work, awaited)


@types.coroutine
def _go_on(work: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that waits for something."""
    try:
        yield awaited
        return (yield from work)
    finally:
        work.close()


class WatchedAnswer:
    """Remembers whether the answer has begun: after that, its status can no longer be chosen."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.has_begun = False
        # How a stream that is under way says that it failed, where it has a way to.
        self.error_record: ErrorRecord | None = None

    async def send(self, message: Any) -> None:
        self.has_begun = True
        await self._send(message)
