"""The real openai SDK, fed from memory: what a client sees of the bytes that we write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletion

from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.writer import ChatWriter

INFO = CompletionInfo(id="chatcmpl-1", created=1, model="m")
QUESTION: Any = {"model": "m", "messages": [{"role": "user", "content": "?"}]}


def stream_of(events: Iterable[Any], info: CompletionInfo = INFO) -> bytes:
    writer = ChatWriter(info, is_stream=True)
    return b"".join([*map(writer.write, events), writer.end()])


def body_of(events: Iterable[Any], info: CompletionInfo = INFO) -> bytes:
    writer = ChatWriter(info, is_stream=False)
    for event in events:
        writer.add(event)
    return writer.result()


def client_that_reads(content: bytes | Iterable[bytes], content_type: str) -> openai.OpenAI:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": content_type}, content=content)

    return openai.OpenAI(
        api_key="key",
        base_url="http://gateway/v1",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
    )


def read_stream(pieces: Iterable[bytes]) -> ChatCompletion:
    """What the SDK's accumulator makes of a stream that arrives in these pieces."""
    client = client_that_reads(iter(pieces), "text/event-stream; charset=utf-8")
    with client.chat.completions.stream(**QUESTION) as stream:
        try:
            return stream.get_final_completion()
        except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError) as error:
            # It has read all of it, and warns that the text may be cut short.
            return error.completion  # type: ignore[return-value]


def read_chunks(stream: bytes) -> list[dict[str, Any]]:
    client = client_that_reads(iter([stream]), "text/event-stream; charset=utf-8")
    return [chunk.to_dict() for chunk in client.chat.completions.create(**QUESTION, stream=True)]


def read_json(body: bytes) -> ChatCompletion:
    client = client_that_reads(body, "application/json")
    return client.chat.completions.create(**QUESTION)  # type: ignore[no-any-return]


def cut(data: bytes, positions: Iterable[int]) -> Iterator[bytes]:
    """`data` in pieces that end at `positions`."""
    last = 0
    for position in sorted(positions):
        if last < position < len(data):
            yield data[last:position]
            last = position
    yield data[last:]


def without_sdk_extras(completion: ChatCompletion) -> Any:
    """The completion as a dictionary, without the nulls and the keys that the accumulator adds for itself."""
    return without_nulls(completion.to_dict(), drop={"object", "parsed", "parsed_arguments", "index"})


def without_nulls(value: Any, drop: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    if isinstance(value, dict):
        return {
            name: without_nulls(inner, drop)
            for name, inner in value.items()
            if inner is not None and name not in drop
        }
    return [without_nulls(inner, drop) for inner in value] if isinstance(value, list) else value
