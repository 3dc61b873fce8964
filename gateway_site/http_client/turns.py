"""Fair turns at the event loop, for work that takes more than a moment."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """
    Gives one waiting task its turn for each pass of the loop, in the order in which they came.

    However many answers arrive faster than they can be handled, a pass of the loop handles a slice of one of
    them. Requests that need only a moment wait for that one slice, and not for a slice of each.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()

    def next(self) -> asyncio.Future[None]:
        """Done when it is the caller's turn, never at once."""
        turn = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._give)
        self._waiting.append(turn)
        return turn

    def _give(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its task was cancelled meanwhile
                turn.set_result(None)
                break
        if self._waiting:
            self._loop.call_soon(self._give)
