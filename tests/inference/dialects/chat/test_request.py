"""A client asks for a chat completion: every field, its type, its bounds and its null."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_site.api.errors import InvalidRequest
from inference.dialects.chat import parse
from inference.dialects.chat.parse import ParsedChatRequest
from inference.dialects.chat.request import ChatCompletionRequest, ChatMessage
from inference.prompt import JsonObject, JsonSchema, NamedTool, Prompt, Reasoning, Tool

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def ask(**fields: Any) -> ParsedChatRequest:
    return parse.parse(json.dumps({**HELLO, **fields}).encode())


def prompt(**fields: Any) -> Prompt:
    return ask(**fields).prompt


def refusal(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        ask(**fields)
    return raised.value


def test_it_works() -> None:
    call = ask()

    assert call.prompt.turns[0].role == "user"
    assert call.prompt.turns[0].content == "Hello"
    assert call.prompt.output_bound == 1024
    assert call.prompt.completions == 1
    assert not call.prompt.options_used
    assert not call.stream


# --- The table of the interface, as values ------------------------------------------------------------
#
# For each field: values that are accepted and values that are not, as close to the edge as can be.

NO_INTEGER = [True, 1.0, 1.5, "1", [], {}, 1e2]
NO_NUMBER = [True, "1", [], {}]
NO_BOOLEAN = [0, 1, "true", [], {}]
NO_STRING = [1, True, [], {}]
NO_OBJECT = [1, True, "x", [], [{}]]
NO_LIST = [1, True, "x", {}]
EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultracode"]

Rows = tuple[list[Any], list[Any]]


def integer(low: int | None = None, high: int | None = None) -> Rows:
    if low is None or high is None:
        return [-(10**12), 0, 10**12], NO_INTEGER
    return [low, high], [low - 1, high + 1, 0, -1, 2**31, 2**63, 2**64, *NO_INTEGER]


def number(low: float | None = None, high: float | None = None) -> Rows:
    if low is None or high is None:
        return [-1, 0, 0.5, 3.25, 10**6], NO_NUMBER
    return [low, high, 0, 0.5], [math.nextafter(low, -math.inf), math.nextafter(high, math.inf), *NO_NUMBER]


def text(least: int = 0, most: int | None = None) -> Rows:
    # Lengths are of code points: the longest is tried with characters of four bytes.
    good, bad = ["x" * max(least, 1)], [*NO_STRING]
    if least:
        bad.append("")
    else:
        good.append("")
    if most is not None:
        good.append("😀" * most)
        bad.append("x" * (most + 1))
    return good, bad


def choice(values: list[str]) -> Rows:
    return [*values], ["", "other", values[0].upper() + "!", *NO_STRING]


BOOLEAN: Rows = [True, False], NO_BOOLEAN
FREE_FORM: Rows = [{}, {"any": {"thing": [1, None]}}], NO_OBJECT
FREE_FORMS: Rows = [[], [{}], [{"any": 1}, {}]], [*NO_LIST, [1], ["x"], [None]]
STRINGS: Rows = [[], ["a", ""]], [*NO_LIST, [1], [None]]

NULLABLE: dict[str, Rows] = {
    "max_tokens": integer(1, 999_990),
    "max_completion_tokens": integer(1, 999_990),
    "temperature": number(),
    "top_p": number(),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "logit_bias": (
        [{}, {"5": -100, "6": 100.0}],
        [*NO_OBJECT, {"5": 100.00001}, {"5": -100.00001}, {"5": "1"}],
    ),
    "n": integer(1, 128),
    "seed": integer(),
    "stop": (["x", "", [], ["a", "b"]], [1, True, {}, [1], [None]]),
    "stream_options": (
        [{}, {"include_usage": True}, {"include_usage": None}],
        [*NO_OBJECT, {"include_usage": 1}, {"include_obfuscation": True}],
    ),
    "thinking": BOOLEAN,
    "reasoning": (
        [
            {},
            {"enabled": None, "effort": None, "max_tokens": None, "exclude": None},
            *({"effort": effort} for effort in EFFORTS),
            *({"max_tokens": bound} for bound in integer(1, 999_990)[0]),
            {"enabled": True, "exclude": False},
        ],
        [
            *NO_OBJECT,
            {"effort": "huge"},
            *({"max_tokens": bound} for bound in integer(1, 999_990)[1]),
            {"enabled": 1},
            {"exclude": "no"},
            {"summary": "auto"},
        ],
    ),
    "reasoning_effort": choice(EFFORTS),
    "include_reasoning": BOOLEAN,
    "safety_identifier": text(most=64),
    "user": text(most=512),
    "tools": FREE_FORMS,
    "tool_choice": (["none", "auto", "required", {}, {"type": "function"}], ["any", 1, True, []]),
    "parallel_tool_calls": BOOLEAN,
    "functions": FREE_FORMS,
    "function_call": (["none", "auto", {}, {"name": "f"}], ["required", 1, True, []]),
    "response_format": (
        [
            {"type": "text"},
            {"type": "json_object"},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
            {"type": "json_schema", "json_schema": {"name": "x" * 128, "schema": {}, "strict": None}},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "description": "😀" * 2048}},
        ],
        [
            *NO_OBJECT,
            {},
            {"type": "xml"},
            {"type": None},
            {"type": "text", "json_schema": {"name": "x", "schema": {}}},
            {"type": "json_object", "extra": 1},
            {"type": "json_schema"},
            {"type": "json_schema", "json_schema": {"schema": {}}},
            {"type": "json_schema", "json_schema": {"name": "x"}},
            {"type": "json_schema", "json_schema": {"name": "", "schema": {}}},
            {"type": "json_schema", "json_schema": {"name": "x" * 129, "schema": {}}},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "description": "x" * 2049}},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": None}},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": 1}},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "extra": 1}},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}, "extra": 1},
        ],
    ),
    "modalities": STRINGS,
    "verbosity": choice(["low", "medium", "high"]),
    "audio": FREE_FORM,
    "prediction": FREE_FORM,
    "metadata": FREE_FORM,
    "service_tier": text(),
    "prompt_cache_key": text(most=512),
    "prompt_cache_retention": choice(["in_memory", "24h"]),
    "logprobs": BOOLEAN,
    "top_logprobs": integer(),
    "prompt_logprobs": integer(),
    "web_search_options": FREE_FORM,
    "cache_salt": text(),
}
NEVER_NULL: dict[str, Rows] = {
    "model": text(1, 200),
    "messages": ([[{"role": "user"}]], [[], [1], *NO_LIST]),
    "policy_ids": (
        [[], ["x"], ["x" * 120] * 1000],
        [*NO_LIST, [""], ["x" * 121], ["x"] * 1001, [1], [None]],
    ),
    "stream": BOOLEAN,
    "structuredOutputs": BOOLEAN,
    "store": ([False], [True, *NO_BOOLEAN]),
}
FIELDS = {**NULLABLE, **NEVER_NULL}
ACCEPTED = [(field, value) for field, (good, _) in FIELDS.items() for value in good]
REFUSED = [(field, value) for field, (_, bad) in FIELDS.items() for value in bad]


def short(value: Any) -> str:
    return repr(value)[:40]


def test_the_table_has_every_field() -> None:
    assert set(FIELDS) == set(ChatCompletionRequest.__struct_fields__)


@pytest.mark.parametrize(("field", "value"), ACCEPTED, ids=short)
def test_a_value_within_its_bounds_is_accepted(field: str, value: Any) -> None:
    assert ask(**{field: value})


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=short)
def test_a_value_out_of_bounds_or_of_another_type_is_refused_by_name(field: str, value: Any) -> None:
    param = refusal(**{field: value}).param

    assert param is not None
    assert param.replace("[", ".").split(".")[0] == field


@pytest.mark.parametrize("field", NULLABLE)
def test_null_is_the_same_as_leaving_it_out(field: str) -> None:
    assert ask(**{field: None}) == ask()


@pytest.mark.parametrize("field", NEVER_NULL)
def test_null_is_refused_where_the_interface_does_not_name_it(field: str) -> None:
    assert refusal(**{field: None}).param == field


@pytest.mark.parametrize("field", ["model", "messages"])
def test_a_required_field_is_missed_by_name(field: str) -> None:
    body = {name: value for name, value in HELLO.items() if name != field}

    with pytest.raises(InvalidRequest) as raised:
        parse.parse(json.dumps(body).encode())

    assert raised.value.param == field


@given(st.integers())
def test_any_number_of_completions_outside_1_to_128_is_refused(count: int) -> None:
    if 1 <= count <= 128:
        assert prompt(n=count).completions == count
    else:
        assert refusal(n=count).param == "n"


# --- Unknown fields and conflicts ---------------------------------------------------------------------


@pytest.mark.parametrize("field", ["models", "api_base", "api_key", "extra_headers", "max_output_tokens", ""])
def test_an_unknown_field_is_refused_by_name(field: str) -> None:
    assert refusal(**{field: None}).param == (field or None)


def test_a_very_long_unknown_name_is_not_repeated_in_full() -> None:
    error = refusal(**{"x" * 100_000: 1})

    assert len(error.message) < 500
    assert len(error.param or "") < 500


def test_both_output_bounds_conflict() -> None:
    assert refusal(max_tokens=5, max_completion_tokens=5).param == "max_completion_tokens"


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_either_output_bound_is_used(field: str) -> None:
    other = {"max_tokens": None, "max_completion_tokens": None}

    assert prompt(**{**other, field: 7}).output_bound == 7


def test_storing_is_refused() -> None:
    assert refusal(store=True).param == "store"


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"1"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse.parse(body)


# --- What the fields mean -----------------------------------------------------------------------------


def test_stream_flags_are_read() -> None:
    assert ask(stream=True).stream
    assert not ask(stream=True).include_usage
    assert ask(stream=True, stream_options={"include_usage": True}).include_usage
    assert not ask(stream=True, stream_options={"include_usage": None}).include_usage


def test_policy_ids_are_read() -> None:
    assert ask(policy_ids=["a", "b"]).policy_ids == ("a", "b")


def test_one_stop_and_several_are_the_same_kind_of_thing() -> None:
    assert prompt(stop="x").sampling.stop == ("x",)
    assert prompt(stop=["x", "y"]).sampling.stop == ("x", "y")


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({}, Reasoning()),
        ({"thinking": True}, Reasoning(enabled=True)),
        ({"reasoning_effort": "low"}, Reasoning(effort="low")),
        ({"include_reasoning": False}, Reasoning(shown=False)),
        ({"reasoning": {"exclude": True}}, Reasoning(shown=False)),
        ({"reasoning": {"enabled": False}, "thinking": True}, Reasoning(enabled=False)),
        ({"reasoning": {"effort": "high"}, "reasoning_effort": "low"}, Reasoning(effort="high")),
        ({"reasoning": {"max_tokens": 9}, "thinking": True}, Reasoning(enabled=True, max_tokens=9)),
        ({"reasoning": {"exclude": False}, "include_reasoning": False}, Reasoning(shown=True)),
    ],
)
def test_reasoning_options_are_read_under_several_names(fields: dict[str, Any], meant: Reasoning) -> None:
    assert prompt(**fields).reasoning == meant


def test_tools_are_read_where_they_are_functions_and_kept_where_not() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    custom = {"type": "custom", "custom": {"name": "c"}}

    tools = prompt(tools=[{"type": "function", "function": function}, custom]).tools

    assert tools == (Tool("f", "d", {"type": "object"}, True), Tool(None, extra=custom))


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("required", "required"),
        ({"type": "function", "function": {"name": "f"}}, NamedTool("f")),
        ({"type": "allowed_tools"}, {"type": "allowed_tools"}),
    ],
)
def test_tool_choice_is_a_word_a_name_or_the_clients_own(raw: Any, meant: Any) -> None:
    assert prompt(tool_choice=raw).tool_choice == meant


def test_legacy_functions_are_read() -> None:
    read = prompt(functions=[{"name": "f", "parameters": {}}], function_call={"name": "f"})

    assert read.functions == (Tool("f", None, {}),)
    assert read.function_call == NamedTool("f")


def test_the_answers_format_is_read() -> None:
    schema = {"name": "x", "schema": {"type": "object"}, "strict": True}

    assert prompt(response_format={"type": "text"}).answer_format is None
    assert prompt(response_format={"type": "json_object"}).answer_format == JsonObject()
    assert prompt(response_format={"type": "json_schema", "json_schema": schema}).answer_format == JsonSchema(
        "x", {"type": "object"}, strict=True
    )


USES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"temperature": 0}, {"temperature": "temperature"}),
    ({"n": 1, "top_p": 1, "logprobs": False, "tool_choice": "auto", "modalities": ["text"]}, {}),
    ({"frequency_penalty": 0, "stop": [], "tools": [], "service_tier": "auto", "verbosity": "medium"}, {}),
    ({"n": 2}, {"n": "n"}),
    ({"response_format": {"type": "text"}}, {}),
    ({"response_format": {"type": "json_object"}}, {"json_object": "response_format"}),
    ({"thinking": True}, {"reasoning": "thinking"}),
    ({"thinking": False, "reasoning_effort": "none"}, {}),
    (
        {"reasoning": {"effort": "low", "max_tokens": 5}},
        {"reasoning_effort": "reasoning.effort", "reasoning_max_tokens": "reasoning.max_tokens"},
    ),
    ({"tools": [{"type": "function"}]}, {"tools": "tools"}),
    ({"tools": [{}, {"type": "custom"}]}, {"tools": "tools", "other_tools": "tools[1]"}),
    ({"parallel_tool_calls": True}, {}),
    ({"parallel_tool_calls": False}, {"parallel_tool_calls": "parallel_tool_calls"}),
    ({"web_search_options": {}}, {"web_search_options": "web_search_options"}),
]


@pytest.mark.parametrize(("fields", "used"), USES)
def test_an_option_is_used_only_when_it_asks_for_something(
    fields: dict[str, Any], used: dict[str, str]
) -> None:
    assert prompt(**fields).options_used == used


def test_the_types_describe_themselves_for_the_interface_document() -> None:
    _, components = msgspec.json.schema_components([ChatCompletionRequest])

    assert components["ChatCompletionRequest"]["additionalProperties"] is False
    assert components["ChatCompletionRequest"]["required"] == ["model", "messages"]
    assert components[ChatMessage.__name__]["additionalProperties"] is False
    assert components["ChatContentPart"].get("additionalProperties") is not False
