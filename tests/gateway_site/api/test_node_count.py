"""Clients send bodies of very many JSON values: counted by their bytes, and refused above the bound."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway_site.api.bodies import node_count, strict_json
from gateway_site.api.bodies.node_count import count_nodes, most_nodes, require_bounded_nodes
from gateway_site.api.errors import InvalidRequest
from inference.dialects import body
from organization.models import Project
from tests.harness.client import ApiClient, exchange
from tests.harness.error_checks import assert_error

STRINGS = st.text(st.sampled_from('{}[],:"\\/ab \n\u2028é'), max_size=6) | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=25,
)


def walked(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(walked, value.values()))
    return 1 + sum(map(walked, value)) if isinstance(value, list) else 1


@pytest.mark.slow
@given(VALUES, st.sampled_from([None, 1]), st.sampled_from([",", " , "]), st.booleans(), st.integers(1, 40))
@example({"a": "\\"}, None, ",", True, 7)
@example(["\\\\\\\\\\\\", {}, [], '\\"'], None, " , ", False, 2)
@example({"": ""}, None, ",", False, 1)
def test_values_are_counted_as_a_walk_of_the_parsed_body_counts_them(
    value: Any, indent: int | None, comma: str, is_ascii: bool, slice_bytes: int
) -> None:
    data = json.dumps(value, indent=indent, separators=(comma, " : "), ensure_ascii=is_ascii).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_count, "SLICE_BYTES", slice_bytes)

        assert count_nodes(data) == walked(value)
        assert count_nodes(data, limit=3) == walked(value) or count_nodes(data, limit=3) > 3
    assert most_nodes(data) >= walked(value)


@pytest.fixture
def few(settings: Any) -> int:
    settings.GATEWAY_MAX_BODY_NODES = 100
    return 100


HOSTILE = {
    "objects": b"[" + b",".join([b"{}"] * 1_000) + b"]",
    "numbers": b"[" + b",".join([b"1"] * 1_000) + b"]",
    "names": b"{" + b",".join(b'"%d":0' % name for name in range(1_000)) + b"}",
    "brackets that never close": b"[" * 1_000,
    "after a string that holds escapes": b'["\\"\\\\",' + b"{}," * 1_000 + b"{}]",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("loads", [body.loads, strict_json.loads])
def test_a_body_of_too_many_values_is_refused_by_its_bytes(data: bytes, loads: Any, few: int) -> None:
    with pytest.raises(InvalidRequest, match=r"more than 100 JSON values.*GATEWAY_MAX_BODY_NODES"):
        loads(data)


def test_as_many_values_as_allowed_are_read(few: int) -> None:
    data = json.dumps([{"a": "," * 50}] * 49 + [1]).encode()  # the list, 49 objects with one value each, a 1

    assert walked(json.loads(data)) == few
    assert len(body.loads(data)) == 50
    with pytest.raises(InvalidRequest):
        body.loads(data.replace(b", 1]", b", 1, 1]"))


@pytest.mark.parametrize("unit", ["{},[],", '\\"{', "\\\\", "\n,", "日,"])
def test_a_long_text_of_braces_and_commas_is_one_value(unit: str) -> None:
    text = unit * (3_000_000 // len(unit))
    data = json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False).encode()

    require_bounded_nodes(data)
    assert count_nodes(data) == 5
    assert body.loads(data)["messages"][0]["content"] == text


@pytest.mark.parametrize("path", ["policies", "projects/{project}/api_keys"])
def test_an_administrator_sends_an_object_of_very_many_names(
    api: ApiClient, project: Project, path: str
) -> None:
    data = b"{" + b",".join(b'"n%d":0' % name for name in range(60_000)) + b"}"
    headers = [("Authorization", f"Bearer {api.key}"), ("Content-Type", "application/json")]

    headers += [("Idempotency-Key", "names-0001")]
    answer = exchange("POST", f"/v1/organization/{path.format(project=project.pk)}", headers, [data])

    assert_error(answer, 400, "invalid_request")
    assert "50000 JSON values" in answer.json["error"]["message"]


@pytest.mark.parametrize("loads", [body.loads, strict_json.loads])
def test_a_repeated_name_is_not_repeated_at_length(loads: Any) -> None:
    name = "n" * 1_000_000

    with pytest.raises(InvalidRequest) as refused:
        loads(f'{{"{name}": 1, "{name}": 2}}'.encode())

    assert len(refused.value.param or "") <= 300
