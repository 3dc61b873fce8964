"""A client asks for a response."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from gateway_site.api.errors import InvalidRequest
from inference.dialects.responses.request import Include, ServiceTier
from inference.dialects.responses.tools import WEB_SEARCH_TYPES
from inference.prompt import JsonObject, JsonSchema, NamedTool, Option, Tool, Turn
from tests.inference.dialects.responses.sdk import parse_request

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        parse_request(**fields)
    return raised.value


def test_it_works() -> None:
    request = parse_request(input="hi", instructions="Be brief.")

    assert request.prompt.turns == (
        Turn(role="system", content="Be brief."),
        Turn(role="user", content="hi"),
    )
    assert request.prompt.output_bound == 1024
    assert request.prompt.completions == 1
    assert not request.stream
    assert not request.prompt.options_used


# (field, accepted, refused)
BOUNDS: list[tuple[str, list[Any], list[Any]]] = [
    ("model", ["m", "m" * 200], ["", "m" * 201, None, 1]),
    ("input", ["", "a"], [None, 1, {}, [1]]),
    ("instructions", [None, "a"], [1, ["a"]]),
    ("max_output_tokens", [None, 1, 999_990], [0, 999_991, 1.5, "1", True]),
    ("max_tokens", [None, 1, 999_990], [0, 999_991]),
    ("max_completion_tokens", [None, 1, 999_990], [0, 999_991]),
    ("temperature", [None, 0, 0.5, 2], ["1"]),
    ("top_p", [None, 0.5], ["1"]),
    ("frequency_penalty", [None, -2, 2], [-2.1, 2.1]),
    ("presence_penalty", [None, -2, 2], [-2.1, 2.1]),
    ("top_logprobs", [None, 0, 20], [-1, 21]),
    ("stream", [None, True, False], ["true", 1]),
    ("parallel_tool_calls", [None, True, False], [1]),
    ("include", [None, [], list(get_args(Include))], [["other"], "reasoning.encrypted_content"]),
    ("truncation", [None, "auto", "disabled"], ["none", True]),
    ("service_tier", [None, *get_args(ServiceTier)], ["fast", ""]),
    ("prompt_cache_key", [None, "k" * 512], ["k" * 513]),
    ("prompt_cache_retention", [None, "in_memory", "24h"], ["1h"]),
    ("user", [None, "u" * 512], ["u" * 513]),
    ("safety_identifier", [None, "s" * 64], ["s" * 65]),
    ("policy_ids", [[], ["p" * 120], ["p"] * 1000], [None, [""], ["p" * 121], ["p"] * 1001]),
    ("metadata", [None, {}, {"k" * 64: "v" * 512}], [{"k" * 65: "v"}, {"k": "v" * 513}, {"k": 1}]),
    ("stream_options", [None, {}, {"include_obfuscation": False}], [{"include_usage": True}]),
    ("tool_choice", [None, "none", "auto", "required"], ["any", 1, {}, {"type": "mcp"}]),
    ("tools", [None, [], [FUNCTION]], [[{}], [{"type": "file_search"}], [{"type": "function"}], [1]]),
    (
        "text",
        [None, {}, {"format": {"type": "text"}}, {"verbosity": "low"}],
        [{"verbosity": "max"}, {"a": 1}],
    ),
    ("reasoning", [None, {}, {"effort": "ultracode"}, {"summary": "auto"}], [{"effort": "huge"}, {"a": 1}]),
    ("store", [None, False], [True]),
    ("background", [None, False], [True]),
    ("previous_response_id", [None], ["resp_1"]),
    ("conversation", [None], ["conv_1", {"id": "conv_1"}]),
    ("prompt", [None], [{"id": "pmpt_1"}]),
    ("max_tool_calls", [None], [1]),
    ("context_management", [None], [[{"type": "compaction"}]]),
]
ACCEPTED = [(field, value) for field, values, _ in BOUNDS for value in values]
REFUSED = [(field, value) for field, _, values in BOUNDS for value in values]


@pytest.mark.parametrize(("field", "value"), ACCEPTED)
def test_a_value_within_bounds_is_accepted(field: str, value: Any) -> None:
    assert parse_request(**{field: value}).prompt.model


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_a_value_out_of_bounds_is_refused_by_name(field: str, value: Any) -> None:
    assert (refused(**{field: value}).param or "").startswith(field)


def test_more_metadata_than_sixteen_is_refused() -> None:
    assert refused(metadata={str(number): "" for number in range(17)}).param == "metadata"


@pytest.mark.parametrize("field", ["store", "background", "previous_response_id", "conversation"])
def test_what_a_stateless_service_cannot_do_is_said_in_words(field: str) -> None:
    value = True if field in ("store", "background") else "an_id"

    assert "here" in refused(**{field: value}).message


def test_an_unknown_field_is_refused_by_name() -> None:
    assert refused(messages=[]).param == "messages"


def test_exactly_one_bound_may_be_sent() -> None:
    assert parse_request(max_tokens=7).prompt.output_bound == 7
    assert parse_request(max_completion_tokens=8).prompt.output_bound == 8
    assert refused(max_output_tokens=5, max_tokens=5).param == "max_tokens"


def test_functions_are_written_flat() -> None:
    prompt = parse_request(
        tools=[{**FUNCTION, "description": "d"}], tool_choice={"type": "function", "name": "f"}
    ).prompt

    assert prompt.tools == (Tool("f", "d", {"type": "object"}, True),)
    assert prompt.tool_choice == NamedTool("f")
    assert prompt.options_used == {"tools": "tools", "tool_choice": "tool_choice"}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"name": ""}, "tools[0].name"),
        ({"description": 1}, "tools[0].description"),
        ({"parameters": []}, "tools[0].parameters"),
        ({"strict": "yes"}, "tools[0].strict"),
    ],
)
def test_a_tool_that_is_no_valid_function_is_refused(change: dict[str, Any], param: str) -> None:
    assert refused(tools=[{**FUNCTION, **change}]).param == param


@pytest.mark.parametrize("alias", sorted(WEB_SEARCH_TYPES))
def test_web_search_goes_by_each_of_its_names(alias: str) -> None:
    location = {"type": "approximate", "city": "Bern", "country": None}
    tool = {"type": alias, "search_context_size": "low", "user_location": location}

    prompt = parse_request(tools=[FUNCTION, tool], tool_choice={"type": alias}).prompt

    assert prompt.web_search_options == {
        "search_context_size": "low",
        "user_location": {"type": "approximate", "approximate": {"city": "Bern"}},
    }
    assert prompt.options_used["web_search_options"] == "tools[1]"
    assert prompt.tool_choice is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}, {"type": "web_search_preview"}]}, "tools[1]"),
        ({"tools": [{"type": "web_search", "search_context_size": "huge"}]}, "tools[0].search_context_size"),
        ({"tools": [{"type": "web_search", "user_location": {"city": 1}}]}, "tools[0].user_location"),
        ({"tools": [{"type": "web_search", "user_location": "Bern"}]}, "tools[0].user_location"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}},
            "tool_choice.tools",
        ),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_a_search_is_not_made_without_its_limits() -> None:
    """No backend can be told of them, so each answers 501 rather than search everywhere."""
    narrow = {"type": "web_search", "filters": {"allowed_domains": ["e.com"]}, "external_web_access": False}

    used = parse_request(tools=[narrow]).prompt.options_used

    assert used["other_tools"] in ("tools[0].filters", "tools[0].external_web_access")
    assert (
        "other_tools"
        not in parse_request(tools=[{"type": "web_search", "filters": None}]).prompt.options_used
    )


def test_with_no_tool_to_be_used_there_is_no_search() -> None:
    prompt = parse_request(tools=[FUNCTION, {"type": "web_search"}], tool_choice="none").prompt

    assert prompt.web_search_options is None
    assert prompt.tools
    assert "web_search_options" not in prompt.options_used


def test_a_search_that_is_required_alone_is_just_made() -> None:
    assert parse_request(tools=[{"type": "web_search"}], tool_choice="required").prompt.tool_choice is None


def test_allowed_tools_are_written_as_chat_has_them() -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}

    assert parse_request(tools=[FUNCTION], tool_choice=choice).prompt.tool_choice == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
    }


def test_the_format_of_the_answer() -> None:
    assert parse_request(text={"format": {"type": "json_object"}}).prompt.answer_format == JsonObject()
    assert parse_request(text={"format": SCHEMA}).prompt.answer_format == JsonSchema(
        "n", {"type": "object"}, None, True
    )
    assert parse_request(text={"format": {"type": "text"}}).prompt.answer_format is None
    assert refused(text={"format": {**SCHEMA, "name": "n" * 129}}).param == "text.format.name"
    assert refused(text={"format": {**SCHEMA, "description": "d" * 2049}}).param == "text.format.description"


def test_the_options_that_a_backend_may_lack_are_named_by_their_fields() -> None:
    used = parse_request(
        temperature=0.5,
        top_p=0.5,
        frequency_penalty=1,
        presence_penalty=1,
        parallel_tool_calls=False,
        service_tier="flex",
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        reasoning={"effort": "high"},
        text={"verbosity": "low", "format": SCHEMA},
    ).prompt.options_used

    assert set(used) <= set(get_args(Option))
    assert used == {
        "temperature": "temperature",
        "top_p": "top_p",
        "frequency_penalty": "frequency_penalty",
        "presence_penalty": "presence_penalty",
        "parallel_tool_calls": "parallel_tool_calls",
        "service_tier": "service_tier",
        "logprobs": "include",
        "top_logprobs": "top_logprobs",
        "reasoning_effort": "reasoning.effort",
        "verbosity": "text.verbosity",
        "json_schema": "text.format",
    }


def test_values_that_ask_for_nothing_use_nothing() -> None:
    request = parse_request(
        top_p=1,
        frequency_penalty=0,
        parallel_tool_calls=True,
        service_tier="default",
        tool_choice="auto",
        tools=[],
        reasoning={"effort": "none"},
        text={"verbosity": "medium", "format": {"type": "text"}},
    )

    assert not request.prompt.options_used


def test_logprobs_are_asked_for_by_include_alone() -> None:
    assert not parse_request(top_logprobs=3).prompt.sampling.logprobs
    sampling = parse_request(top_logprobs=3, include=["message.output_text.logprobs"]).prompt.sampling

    assert (sampling.logprobs, sampling.top_logprobs) == (True, 3)


@pytest.mark.parametrize("field", ["summary", "generate_summary"])
def test_a_summary_of_reasoning_is_written_where_it_was_asked_for(field: str) -> None:
    assert parse_request(reasoning={field: "auto"}).summarizes
    assert not parse_request(reasoning={"effort": "low"}).summarizes


def test_hints_and_flags_are_read() -> None:
    request = parse_request(
        stream=True,
        policy_ids=["p1", "p2"],
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        user="u",
        safety_identifier="s",
        include=["reasoning.encrypted_content"],
    )

    assert request.stream
    assert request.seals
    assert request.policy_ids == ("p1", "p2")
    assert (request.prompt.cache.key, request.prompt.cache.retention) == ("k", "24h")
    assert (request.prompt.user, request.prompt.safety_identifier) == ("u", "s")
