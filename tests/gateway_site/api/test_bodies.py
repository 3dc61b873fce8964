"""Clients send bodies that are too large, of another type, or not quite JSON: 4xx, never 500."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway_site.api.bodies.incoming_body import IncomingBody, incoming_bodies
from gateway_site.api.request_id import RequestIdMiddleware
from gateway_site.api.request_limits import RequestLimitsMiddleware
from organization.models import Project, ProjectKey
from tests.harness.client import Answer, ApiClient, exchange
from tests.harness.error_checks import assert_error

# What Python's own decoder would take, or answer with something else than a refusal.
NOT_JSON = {
    "empty": b"",
    "blank": b" \n",
    "truncated": b'{"name": "app"',
    "trailing comma": b'{"name": "app",}',
    "two values": b'{"name": "app"} {}',
    "single quotes": b"{'name': 'app'}",
    "nan": b'{"name": NaN}',
    "infinity": b'{"name": -Infinity}',
    "overflowing float": b'{"name": 1e999}',
    "huge integer": b'{"name": ' + b"9" * 5000 + b"}",
    "byte order mark": b'\xef\xbb\xbf{"name": "app"}',
    "utf-16": '{"name": "app"}'.encode("utf-16"),
    "latin-1": '{"name": "größe"}'.encode("latin-1"),
    "raw control character": b'{"name": "a\x01b"}',
    "raw nul": b'{"name": "a\x00b"}',
    "escaped nul": b'{"name": "a\\u0000b"}',
    "nul in a name": b'{"na\\u0000me": 1}',
    "lone surrogate": b'{"name": "\\ud800"}',
    "surrogate in a name": b'{"\\udfff": 1}',
    "encoded surrogate": b'{"name": "\xed\xa0\x80"}',
    "duplicate name": b'{"name": "a", "name": "b"}',
    "duplicate name, escaped": b'{"name": "a", "n\\u0061me": "b"}',
    "duplicate deep inside": b'{"name": [{"x": 1, "x": 2}]}',
    "65 arrays": b'{"name": ' + b"[" * 65 + b"]" * 65 + b"}",
    "65 objects": b'{"name":' * 65 + b"1" + b"}" * 65,
    "1,000 arrays": b"[" * 1_000 + b"]" * 1_000,
    "100,000 arrays": b"[" * 100_000 + b"]" * 100_000,
    "100,000 open objects": b'{"a":' * 100_000,
    "array": b'["name"]',
    "string": b'"name"',
    "number": b"7",
    "null": b"null",
}
ACCEPTED_TYPES = [
    "application/json",
    "application/json; charset=utf-8",
    "application/json;charset=UTF-8",
    'application/json; charset="utf-8"',
    "APPLICATION/JSON",
]
REFUSED_TYPES = [
    None,
    "",
    "text/json",
    "text/plain",
    "application/jsonp",
    "application/json, text/plain",
    "application/problem+json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "application/json; charset=bogus",
    "application/json; charset*=utf-7''x",
    "application",
    "*/*",
]


@pytest.fixture
def create(api: ApiClient, project: Project) -> Any:
    def create(body: bytes, content_type: str | None = "application/json", **headers: str) -> Answer:
        sent = [("Authorization", f"Bearer {api.key}"), ("Idempotency-Key", "bodies-0001")]
        sent += [("Content-Type", content_type)] if content_type is not None else []
        sent += [(name.replace("_", "-"), value) for name, value in headers.items()]
        return exchange("POST", f"/v1/organization/projects/{project.pk}/api_keys", sent, [body])

    return create


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_a_body_that_is_not_quite_json_is_refused(create: Any, body: bytes) -> None:
    assert_error(create(body), 400, "invalid_request")
    assert not ProjectKey.objects.exists()


def test_64_levels_are_read_and_refused_for_their_type_alone(create: Any) -> None:
    body = b'{"name": ' + b"[" * 63 + b"]" * 63 + b"}"

    assert_error(create(body), 400, param="name")


def test_an_escaped_pair_of_surrogates_is_one_character(create: Any) -> None:
    assert create(b'{"name": "\\ud83d\\ude00"}').json["name"] == "😀"


@pytest.mark.parametrize("content_type", ACCEPTED_TYPES)
def test_json_by_any_of_its_names_is_taken(create: Any, content_type: str) -> None:
    assert create(b'{"name": "app"}', content_type).status == 200


@pytest.mark.parametrize("content_type", REFUSED_TYPES)
def test_another_type_is_refused(create: Any, content_type: str | None) -> None:
    assert_error(create(b'{"name": "app"}', content_type), 415, "unsupported_media_type")
    assert not ProjectKey.objects.exists()


def test_a_compressed_body_is_refused(create: Any) -> None:
    assert_error(create(b'{"name": "app"}', Content_Encoding="gzip"), 415, "unsupported_media_type")


@pytest.mark.parametrize("accept", ["text/html", "text/event-stream", "image/png", "*/*", "nonsense"])
def test_the_answer_is_json_whatever_the_client_accepts(create: Any, accept: str) -> None:
    answer = create(b'{"name": "app"}', Accept=accept)

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"


class TestSize:
    @pytest.fixture(autouse=True)
    def limit(self, settings: Any) -> int:
        settings.GATEWAY_MAX_BODY_BYTES = 2048
        return 2048

    def padded(self, length: int) -> bytes:
        body = b'{"name": "app"'
        return body + b" " * (length - len(body) - 1) + b"}"

    def test_a_body_at_the_limit_is_read(self, create: Any, limit: int) -> None:
        assert create(self.padded(limit), Content_Length=str(limit)).status == 200

    def test_one_byte_more_is_refused_by_what_it_announces(self, create: Any, limit: int) -> None:
        assert_error(create(self.padded(limit + 1), Content_Length=str(limit + 1)), 413, "request_too_large")

    @pytest.mark.parametrize("announced", [None, "10"])
    def test_one_byte_more_is_refused_as_it_arrives_when_nothing_or_too_little_is_announced(
        self, api: ApiClient, project: Project, limit: int, announced: str | None
    ) -> None:
        headers = [("Authorization", f"Bearer {api.key}"), ("Content-Type", "application/json")]
        headers += [("Content-Length", announced)] if announced else [("Transfer-Encoding", "chunked")]
        chunks = [b" " * 100] * 30

        answer = exchange("POST", f"/v1/organization/projects/{project.pk}/api_keys", headers, chunks)

        assert_error(answer, 413, "request_too_large")

    def test_a_body_is_refused_before_authentication_and_routing(self, db: None, limit: int) -> None:
        answer = exchange("POST", "/nowhere", [], [b"x" * (limit + 1)])

        assert_error(answer, 413, "request_too_large")

    def test_a_chunked_body_is_read_whole(self, api: ApiClient, project: Project) -> None:
        headers = [
            ("Authorization", f"Bearer {api.key}"),
            ("Content-Type", "application/json"),
            ("Transfer-Encoding", "chunked"),
            ("Idempotency-Key", "chunked-0001"),
        ]
        chunks = [b'{"na', b'me": "\xf0\x9f', b'\x98\x80"}']

        answer = exchange("POST", f"/v1/organization/projects/{project.pk}/api_keys", headers, chunks)

        assert answer.json["name"] == "😀"


class TestTime:
    """A clock of one second, and a client that is never silent for as long."""

    @pytest.fixture(autouse=True)
    def limit_seconds(self, settings: Any) -> None:
        settings.GATEWAY_BODY_TIMEOUT_SECONDS = 1

    def read_slowly(self, pieces: int) -> tuple[Answer, int]:
        """The answer to a body in so many pieces, one each quarter of a second, and how many were read."""
        taken = 0

        async def receive() -> dict[str, Any]:
            nonlocal taken
            if taken:
                await asyncio.sleep(0.25)
            taken += 1
            return {"type": "http.request", "body": b"x", "more_body": taken < pieces}

        async def read_all(scope: Any, body: Any, send: Any) -> None:
            while (message := await body())["type"] == "http.request" and message["more_body"]:
                pass
            if message["type"] == "http.request":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b""})

        async def served(scope: Any, _: Any, send: Any) -> None:
            await RequestIdMiddleware(RequestLimitsMiddleware(read_all))(scope, receive, send)

        return exchange("POST", "/", application=served), taken

    @pytest.mark.slow
    def test_a_body_in_pieces_that_arrives_in_time_is_read(self) -> None:
        answer, taken = self.read_slowly(pieces=3)

        assert (answer.status, taken) == (200, 3)

    @pytest.mark.slow
    def test_a_body_that_never_pauses_for_long_and_never_ends_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gateway_site.api.bodies.incoming_body.LINGER_SECONDS", 0.1)

        answer, taken = self.read_slowly(pieces=60)

        assert_error(answer, 400, "invalid_request")
        assert "1 seconds" in answer.error["message"]
        assert taken < 60


class TestNumber:
    """Bodies that arrive at the same time, each in pieces."""

    def pieces(self, *sizes: int) -> IncomingBody:
        waiting = [{"type": "http.request", "body": b"x" * size, "more_body": True} for size in sizes]

        async def receive() -> Any:
            return waiting.pop(0)

        return IncomingBody(receive, limit_bytes=1_000_000)

    def test_large_ones_are_refused_above_the_bound_and_a_small_one_is_not(self, settings: Any) -> None:
        settings.GATEWAY_BODY_QUEUE_BYTES = 1_000
        large = [self.pieces(300) for _ in range(5)]
        small = self.pieces(10)

        async def arrive() -> None:
            for body in (*large, small):
                await body.receive()

        try:
            asyncio.run(arrive())

            refused = [body.refusal for body in large if body.refusal is not None]
            assert [refusal.status for refusal in refused] == [503, 503]
            assert small.refusal is None
        finally:
            for body in (*large, small):
                incoming_bodies.forget(body)

    def test_what_has_ended_makes_room(self, settings: Any) -> None:
        settings.GATEWAY_BODY_QUEUE_BYTES = 400
        first, second = self.pieces(300), self.pieces(300)
        asyncio.run(first.receive())
        incoming_bodies.forget(first)

        asyncio.run(second.receive())

        assert second.refusal is None
        incoming_bodies.forget(second)
