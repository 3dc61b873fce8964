"""The real openai SDK, told to be strict, fed from memory: what a client sees of the bytes that we write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import httpx2
import msgspec
import openai
from openai.types.responses import Response

from inference.dialects.responses import parse
from inference.dialects.responses.writer import ResponseInfo, ResponseWriter

QUESTION: Any = {"model": "m", "input": "?"}


def parse_request(**fields: Any) -> parse.ParsedResponseRequest:
    return parse.parse(json.dumps({**QUESTION, **fields}).encode(), unseal=lambda sealed: sealed)


INFO = ResponseInfo(id="resp_1", created=1, model="m", echo=parse_request().echo, now=lambda: 2.0)
SUMMARY = msgspec.structs.replace(INFO, summarizes=True)


def stream_of(events: Iterable[Any], info: ResponseInfo = INFO) -> bytes:
    writer = ResponseWriter(info)
    return b"".join([*map(writer.write, events), writer.end()])


def body_of(events: Iterable[Any], info: ResponseInfo = INFO) -> bytes:
    writer = ResponseWriter(info)
    for event in events:
        writer.add(event)
    return writer.result()


def payloads(stream: bytes) -> list[dict[str, Any]]:
    """The data of each record, whose `event:` line says the same type."""
    records = stream.split(b"\n\n")
    assert records.pop() == b"", "a stream ends with a blank line"
    found = []
    for record in records:
        event, data = record.split(b"\n")
        found.append(json.loads(data.removeprefix(b"data: ")))
        assert event == b"event: " + found[-1]["type"].encode()
    return found


def client_that_reads(content: bytes | Iterable[bytes], content_type: str) -> openai.OpenAI:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": content_type}, content=content)

    return openai.OpenAI(
        api_key="key",
        base_url="http://gateway/v1",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
        _strict_response_validation=True,
    )


def read_events(pieces: Iterable[bytes]) -> list[Any]:
    """The events as the SDK types them, none of which it may fail to know."""
    client = client_that_reads(iter(pieces), "text/event-stream; charset=utf-8")
    return list(client.responses.create(**QUESTION, stream=True))


def read_json(body: bytes) -> Response:
    return client_that_reads(body, "application/json").responses.create(**QUESTION)  # type: ignore[no-any-return]
