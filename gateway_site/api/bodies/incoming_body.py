"""A request's body as it arrives: bounded in bytes and seconds, and together with all others of a process."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings

from gateway_site.api.bodies.lazy_timeout import with_lazy_timeout
from gateway_site.api.errors import ApiError, BodyTooLarge, InvalidRequest, Unavailable

# After a refusal the client may still be sending. Reading on lets it see the answer, where a closed socket
# would look like a network failure that its SDK repeats. A simple client reads nothing before it has sent
# everything: one that is not far above the limit can.
LINGER_BYTES = 1024 * 1024
LINGER_SECONDS = 10


class IncomingBodies:
    """
    The bodies that a process has received in part, with the bytes of each.

    Together they may hold GATEWAY_BODY_QUEUE_BYTES. Above that, one that grows is refused if it is no smaller
    than the others are on average: many large ones are, and a small one among them is not.
    """

    def __init__(self) -> None:
        self._bytes: dict[IncomingBody, int] = {}
        self._total_bytes = 0

    def add(self, body: IncomingBody, more_bytes: int) -> None:
        own_bytes = self._bytes[body] = self._bytes.get(body, 0) + more_bytes
        self._total_bytes += more_bytes
        is_over = self._total_bytes > settings.GATEWAY_BODY_QUEUE_BYTES
        if is_over and own_bytes * len(self._bytes) >= self._total_bytes:
            self.forget(body)
            raise Unavailable("Too many large bodies are arriving at once. Try again.")

    def forget(self, body: IncomingBody) -> None:
        self._total_bytes -= self._bytes.pop(body, 0)


incoming_bodies = IncomingBodies()


class IncomingBody:
    """
    A request's body on its way in: not too large, not too slow, and not too many at once.

    Once refused, the application receives a disconnect. It then tidies away what it has read
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
        """Refuse a body whose Content-Length is too large, before a byte of it is read."""
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        # The server has checked that it is a number; a comma-joined repetition would not be one.
        if announced.isdigit() and int(announced) > self._limit_bytes:
            self.refusal = BodyTooLarge(self._limit_bytes)

    async def receive(self) -> Any:
        if self.is_complete:
            return await self._receive()  # waits for the client to hang up, for as long as that takes
        try:
            message = await with_lazy_timeout(self._receive(), self._deadline)
        except TimeoutError:
            limit_seconds = settings.GATEWAY_BODY_TIMEOUT_SECONDS
            self.refusal = InvalidRequest(f"The body did not arrive within {limit_seconds} seconds.")
            return {"type": "http.disconnect"}
        self._count(message)
        if self._seen_bytes > self._limit_bytes:
            self.refusal = BodyTooLarge(self._limit_bytes)
            return {"type": "http.disconnect"}
        if self.is_complete:
            incoming_bodies.forget(self)
        else:
            try:
                incoming_bodies.add(self, len(message.get("body", b"")))
            except Unavailable as refusal:
                self.refusal = refusal
                return {"type": "http.disconnect"}
        return message

    def _deadline(self) -> float:
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + settings.GATEWAY_BODY_TIMEOUT_SECONDS
        return self._until

    async def discard_remaining(self) -> None:
        """Read what the client still sends for a while, keeping nothing."""
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
