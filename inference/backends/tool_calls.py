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

# Most calls of one completion, and most fragments in one record: one may be looked for among all calls.
MAX_CALLS = 128


@dataclass(slots=True)
class _PartialCall:
    number: int
    position: int | None
    id: str | None
    is_started: bool = False
    pending_arguments: str = ""


class ToolCalls:
    """Assembles the tool calls of one completion from their fragments."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._calls: list[_PartialCall] = []

    def read(self, position: int | None, id: str | None, name: str | None, arguments: str) -> list[Event]:
        call = self._find(position, id, name)
        if call is None:
            if len(self._calls) == MAX_CALLS:
                raise BackendFailed
            call = _PartialCall(len(self._calls), position, id)
            self._calls.append(call)
        call.id = call.id or id
        if call.is_started:
            return [ToolCallArguments(self._index, call.number, arguments)] if arguments else []
        call.pending_arguments += arguments
        return self._start(call, name) if name else []

    def finish(self) -> None:
        if not all(call.is_started for call in self._calls):
            raise BackendFailed  # a call of nothing: no client could answer it

    def _start(self, call: _PartialCall, name: str) -> list[Event]:
        call.is_started = True
        id = call.id or f"call_{secrets.token_hex(12)}"
        events: list[Event] = [ToolCallStart(self._index, call.number, id, name)]
        if call.pending_arguments:
            events.append(ToolCallArguments(self._index, call.number, call.pending_arguments))
        return events

    def _find(self, position: int | None, id: str | None, name: str | None) -> _PartialCall | None:
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
