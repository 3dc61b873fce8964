"""The answer to a chat request, as one JSON object or as a stream of chunks."""

from __future__ import annotations

from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.fold import ChatFold
from inference.dialects.chat.stream import ChatStream


class ChatWriter:
    """A `Writer` whose two halves share nothing but what is known before the first token."""

    __slots__ = ("add", "end", "fail", "result", "write")

    def __init__(self, info: CompletionInfo) -> None:
        fold, stream = ChatFold(info), ChatStream(info)
        # Bound here, because a method around each would be another call for every token.
        self.add, self.result = fold.add, fold.result
        self.write, self.end, self.fail = stream.write, stream.end, stream.fail
