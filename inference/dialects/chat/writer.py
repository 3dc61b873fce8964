"""The answer to a chat request, as one JSON object or as a stream of chunks."""

from __future__ import annotations

from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.fold import ChatFold
from inference.dialects.chat.stream import ChatStream


class ChatWriter:
    """A `Writer` with the half that its request needs: `add` and `result`, or `write`, `end` and `fail`."""

    __slots__ = ("add", "end", "fail", "result", "write")

    def __init__(self, info: CompletionInfo, *, is_stream: bool) -> None:
        # Bound here, because a method around each would be another call for every token.
        if is_stream:
            stream = ChatStream(info)
            self.write, self.end, self.fail = stream.write, stream.end, stream.fail
        else:
            fold = ChatFold(info)
            self.add, self.result = fold.add, fold.result
