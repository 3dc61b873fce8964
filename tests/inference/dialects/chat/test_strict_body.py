"""A client sends a body that two readers might understand differently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway_site.api.bodies import strict_json
from gateway_site.api.errors import InvalidRequest
from inference.dialects import body
from inference.dialects.chat import parse

HELLO = '"model":"m","messages":[{"role":"user","content":"Hi"}]'


def outcome(loads: Any, data: bytes) -> Any:
    try:
        return "read", loads(data)
    except InvalidRequest as error:
        return "refused", error.message, error.param


BAD = [
    b"",
    b"{",
    b'{"model":"m","model":"n"}',
    ("{" + HELLO + ',"stream":false,"stream":true}').encode(),
    b'{"messages":[{"role":"user","role":"system"}]}',
    b'{"tools":[{"a":{"b":1,"b":2}}]}',
    rb'{"a":1,"\u0061":2}',
    rb'{"a":"\u003a","b":1,"b":2}',
    b'{"n":NaN}',
    b'{"n":Infinity}',
    b'{"n":1e999}',
    b'{"n":' + b"9" * 5000 + b"}",
    rb'{"a":"\ud800"}',
    rb'{"a":"\u0000"}',
    rb'{"\u0000":1}',
    b'{"a":"\x00"}',
    b'{"a":"\xff"}',
    b'{"a":"\xed\xa0\x80"}',
    b"\xef\xbb\xbf{}",
    '{"a":1}'.encode("utf-16"),
    b'{"a":' * 65 + b"1" + b"}" * 65,
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"[" * 100_000,
    b'{"a":1}{}',
    b"{'a':1}",
    b'{"a":01}',
    b'{"a":1,}',
]


def test_it_works() -> None:
    assert body.loads(b'{"a": [1, 2.5, "\\u00e9", null]}') == {"a": [1, 2.5, "é", None]}


@pytest.mark.parametrize("data", BAD, ids=lambda data: repr(data)[:40])
def test_a_doubtful_body_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        body.loads(data)
    with pytest.raises(InvalidRequest):
        parse.parse(data)


def test_nesting_as_deep_as_allowed_is_read() -> None:
    deepest = b'{"a":' * 64 + b"1" + b"}" * 64

    assert body.loads(deepest) == json.loads(deepest)


def test_many_messages_are_not_deep() -> None:
    many = [{"role": "user", "content": "x"}] * 5000

    assert len(body.loads(json.dumps({"messages": many}).encode())["messages"]) == 5000


NAMES = st.sampled_from(["a", "b", ":", '"', "\\", "é", "\u2028", "\0"]) | st.text(max_size=3)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**28), 10**28)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES
    | st.text(max_size=8)
)


def written(value: Any, draw: st.DrawFn) -> str:
    """JSON as anyone may write it: names twice, characters escaped or not, blanks or none."""
    blank = draw(st.sampled_from(["", "", " ", "\n"]))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        members = [f"{spelled(name, draw)}{blank}:{written(inner, draw)}" for name, inner in value]
        return "{" + f",{blank}".join(members) + "}"
    if isinstance(value, list):
        return "[" + f"{blank},".join(written(inner, draw) for inner in value) + "]"
    return spelled(value, draw) if isinstance(value, str) else json.dumps(value)


def spelled(text: str, draw: st.DrawFn) -> str:
    if draw(st.booleans()):
        return json.dumps(text, ensure_ascii=draw(st.booleans()))
    return '"' + "".join(f"\\u{unit:04x}" for unit in units(text)) + '"'


def units(text: str) -> list[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[index : index + 2]) for index in range(0, len(data), 2)]


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    value = draw(
        st.recursive(
            LEAVES,
            lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(NAMES, inner), max_size=3),
            max_leaves=8,
        )
    )
    data = written(value, draw).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        index = draw(st.integers(0, len(data)))
        data = data[:index] + draw(st.binary(min_size=1, max_size=2)) + data[index:]
    return data


@pytest.mark.slow
@given(bodies())
@example(rb'{"a":"\u003a\u003A","a":1}')
@example(b'{"a":":","a":1}')
def test_the_fast_reader_says_what_the_strict_one_says(data: bytes) -> None:
    assert outcome(body.loads, data) == outcome(strict_json.loads, data)
