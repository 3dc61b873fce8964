"""
Tool calls as servers stream them, made whole.

The format says: each fragment has an index, the first of a call also an id and a name. Servers omit the
index, repeat the name, number from 1, give every call the index 0, or never give an id.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from gateway_site.api.errors import BackendFailed
from inference.events import Event, ToolCallArguments, ToolCallStart

# Of one completion, and of the fragments in one record. A fragment may be looked for among all calls.
MAX_CALLS = 128


@dataclass(slots=True)
class _Call:
    number: int
    position: int | None
    id: str | None
    is_started: bool = False
    held_back: str = ""


class ToolCalls:
    """The calls of one completion."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._calls: list[_Call] = []

    def read(self, position: int | None, id: str | None, name: str | None, arguments: str) -> list[Event]:
        call = self._continued(position, id, name)
        if call is None:
            if len(self._calls) == MAX_CALLS:
                raise BackendFailed
            call = _Call(len(self._calls), position, id)
            self._calls.append(call)
        call.id = call.id or id
        if call.is_started:
            return [ToolCallArguments(self._index, call.number, arguments)] if arguments else []
        call.held_back += arguments
        return self._start(call, name) if name else []

    def finish(self) -> None:
        if not all(call.is_started for call in self._calls):
            raise BackendFailed  # a call of nothing: no client could answer it

    def _start(self, call: _Call, name: str) -> list[Event]:
        call.is_started = True
        id = call.id or f"call_{secrets.token_hex(12)}"
        events: list[Event] = [ToolCallStart(self._index, call.number, id, name)]
        if call.held_back:
            events.append(ToolCallArguments(self._index, call.number, call.held_back))
        return events

    def _continued(self, position: int | None, id: str | None, name: str | None) -> _Call | None:
        """The call that this fragment goes on with; None when it begins one."""
        for call in reversed(self._calls):
            if position is not None and position != call.position:
                continue
            if id and call.id and id != call.id:
                continue
            if position is None and not id and name and call.is_started:
                return None
            return call
        return None
