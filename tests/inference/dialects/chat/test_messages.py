"""A client sends a conversation: messages, parts, images, calls."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gateway_site.api.errors import InvalidRequest
from inference.dialects.chat import parse
from inference.dialects.texts import prompt_texts
from inference.prompt import ImagePart, OtherPart, Prompt, TextPart, ToolCall, Turn

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()


def read(*messages: Any, remote: bool = False, **fields: Any) -> Prompt:
    body = {"model": "m", "messages": messages, **fields}
    return parse.parse(json.dumps(body).encode(), remote_images=remote).prompt


def turn(**message: Any) -> Turn:
    return read({"role": "user", **message}).turns[0]


def part(fields: Any, *, remote: bool = False) -> Any:
    parts = read({"role": "user", "content": [fields]}, remote=remote).turns[0].content
    assert isinstance(parts, tuple)
    return parts[0]


def refused_param(*messages: Any, remote: bool = False) -> str | None:
    with pytest.raises(InvalidRequest) as raised:
        read(*messages, remote=remote)
    return raised.value.param


def test_it_works() -> None:
    turns = read({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}).turns

    assert [(turn.role, turn.content) for turn in turns] == [("system", "Be kind."), ("user", "Hi")]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function"])
def test_every_role_is_accepted(role: str) -> None:
    assert turn(role=role).role == role


REFUSED: list[tuple[Any, str]] = [
    ({}, "messages[0].role"),
    ({"role": "robot"}, "messages[0].role"),
    ({"role": None}, "messages[0].role"),
    ({"role": "user", "content": 5}, "messages[0].content"),
    ({"role": "user", "content": [5]}, "messages[0].content[0]"),
    ({"role": "user", "content": [{}, {"type": 5}]}, "messages[0].content[1].type"),
    ({"role": "user", "content": [{"text": 5}]}, "messages[0].content[0].text"),
    ({"role": "user", "name": 5}, "messages[0].name"),
    ({"role": "user", "reasoning": []}, "messages[0].reasoning"),
    ({"role": "user", "reasoning_content": 1}, "messages[0].reasoning_content"),
    ({"role": "tool", "tool_call_id": 1}, "messages[0].tool_call_id"),
    ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
    ({"role": "assistant", "tool_calls": ["x"]}, "messages[0].tool_calls[0]"),
    ({"role": "assistant", "function_call": "f"}, "messages[0].function_call"),
    ({"role": "user", "model_id": None}, "messages[0].model_id"),
    ({"role": "user", "model_id": ""}, "messages[0].model_id"),
    ({"role": "user", "model_id": "x" * 257}, "messages[0].model_id"),
    ({"role": "assistant", "refusal": None}, "messages[0].refusal"),
    ({"role": "assistant", "annotations": []}, "messages[0].annotations"),
    ({"role": "user", "cache_control": {}}, "messages[0].cache_control"),
]


@pytest.mark.parametrize(("message", "param"), REFUSED, ids=lambda value: repr(value)[:50])
def test_a_wrong_field_is_named_with_its_path(message: Any, param: str) -> None:
    assert refused_param(message) == param


def test_the_path_has_the_index_of_the_wrong_message() -> None:
    assert refused_param({"role": "user"}, {"role": "user"}, {"role": "x"}) == "messages[2].role"


NULLS = ["content", "reasoning", "reasoning_content", "name", "tool_call_id", "tool_calls", "function_call"]


def test_null_is_accepted_where_the_interface_names_it() -> None:
    assert turn(**dict.fromkeys(NULLS)) == turn()


def test_model_id_is_kept() -> None:
    assert turn(model_id="x" * 256).model_id == "x" * 256


def test_an_answer_with_tool_calls_is_read_back() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    read_back = turn(role="assistant", content=None, tool_calls=[call], reasoning_content="hm")

    assert read_back.tool_calls == (ToolCall("call_1", "f", "{}"),)
    assert read_back.reasoning == "hm"


def test_a_tool_call_of_no_function_is_kept_for_the_backend_to_refuse() -> None:
    odd = {"id": "call_1", "type": "custom", "custom": {"name": "c", "input": "x"}}

    assert turn(role="assistant", tool_calls=[odd, {}]).tool_calls == (
        ToolCall(None, None, extra=odd),
        ToolCall(None, None),
    )


def test_a_legacy_call_is_read() -> None:
    read = turn(role="assistant", function_call={"name": "f", "arguments": "{}"})

    assert read.function_call == ToolCall(None, "f", "{}")


# --- Parts --------------------------------------------------------------------------------------------


def test_text_parts_keep_their_extras() -> None:
    assert part({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}) == TextPart(
        "a", {"cache_control": {"type": "ephemeral"}}
    )


@pytest.mark.parametrize(
    "fields", [{"text": "a"}, {"type": None, "text": "a"}, {"type": "text", "text": "a"}]
)
def test_a_part_with_text_is_text(fields: Any) -> None:
    assert part(fields) == TextPart("a")


def test_other_parts_are_kept_as_they_are() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "//uQ", "format": "mp3"}}

    assert part(audio) == OtherPart("input_audio", audio)


@pytest.mark.parametrize("image", [PNG, {"url": PNG}, {"url": PNG, "detail": "low"}])
def test_an_image_is_an_address_or_an_object(image: Any) -> None:
    detail = image.get("detail") if isinstance(image, dict) else None

    assert part({"type": "image_url", "image_url": image}) == ImagePart(PNG, detail)


def test_images_are_counted_for_the_price() -> None:
    image = {"type": "image_url", "image_url": PNG}

    prompt = read(
        {"role": "user", "content": [image, {"type": "text", "text": "?"}, image]},
        {"role": "user", "content": [{"type": "text", "text": "and", "image_url": PNG}]},
    )

    assert prompt.images == 3
    assert prompt.options_used == {"image_input": "messages[0].content"}


@pytest.mark.parametrize("image", [5, True, [], {}, {"url": None}, {"url": 5}, {"url": PNG, "detail": 5}])
def test_an_image_without_an_address_is_refused(image: Any) -> None:
    param = refused_param({"role": "user", "content": [{"type": "image_url", "image_url": image}]})

    assert param is not None
    assert param.startswith("messages[0].content[0].image_url")


WEB = ["https://example.com/cat.png", "http://example.com:8080/a?b=c#d", "HTTPS://EXAMPLE.COM/x"]
NEVER = [
    "",
    "cat.png",
    "/etc/passwd",
    "//169.254.169.254/latest",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "FILE:///etc/passwd",
    "gopher://127.0.0.1:6379/_",
    "ftp://example.com/x",
    "javascript:alert(1)",
    " http://127.0.0.1/",
    "\thttp://127.0.0.1/",
    "http://127.0.0.1/\n",
    "http:\\\\127.0.0.1\\",
    "http://user@127.0.0.1/",
    "http://user:secret@127.0.0.1/",
    "http://good.example\\@127.0.0.1/",
    "http:///x",
    "http:",
    "http://[::1",
    "blob:https://example.com/x",
    "data:text/html;base64,PGI+",
    "data:image/svg+xml;base64,PHN2Zz4=",
    "data:image/png,raw",
    "data:image/png;base64,",
    "data:image/png;base64,@@@@",
    "data:image/png;base64,iVBORw0",
    "data:image/png;base64,iVBORw0K\n",
    "data:image/png;base64,é",
    "data:image/png;charset=x;base64,iVBORw0K",
]


@pytest.mark.parametrize("url", WEB)
def test_an_address_passes_only_where_backends_may_go_out(url: str) -> None:
    fields = {"type": "image_url", "image_url": {"url": url}}

    assert refused_param({"role": "user", "content": [fields]}) == "messages[0].content[0].image_url"
    assert part(fields, remote=True) == ImagePart(url)


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("url", NEVER)
def test_an_address_that_is_no_image_never_passes(url: str, remote: bool) -> None:
    fields = {"type": "image_url", "image_url": url}

    param = refused_param({"role": "user", "content": [fields]}, remote=remote)

    assert param == "messages[0].content[0].image_url"


HIDDEN = [
    {"type": "video_url", "video_url": {"url": "http://169.254.169.254/"}},
    {"type": "video_url", "video_url": "//169.254.169.254/"},
    {"type": "file", "file": {"file_data": "http://127.0.0.1/x"}},
    {"type": "text", "text": "a", "audio_url": "file:/etc/passwd"},
    {"type": "new_thing", "deep": [{"er": [" gopher://127.0.0.1/"]}]},
    {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1"}},
]


@pytest.mark.parametrize("fields", HIDDEN)
def test_an_address_in_any_other_part_is_found(fields: Any) -> None:
    param = refused_param({"role": "user", "content": [fields]})

    assert param is not None
    assert param.startswith("messages[0].content[0].")


def test_text_may_speak_of_addresses() -> None:
    assert part({"type": "text", "text": "http://127.0.0.1/"}) == TextPart("http://127.0.0.1/")


# --- What policies read -------------------------------------------------------------------------------


def test_every_text_that_a_model_reads_is_there_to_be_judged() -> None:
    call = {"id": "id-1", "function": {"name": "f-2", "arguments": "args-3"}}
    prompt = read(
        {"role": "system", "content": "system-4", "name": "name-5"},
        {"role": "user", "content": [{"type": "text", "text": "part-6", "extra": {"key-7": ["leaf-8"]}}]},
        {"role": "user", "content": [{"type": "new", "new": {"x": "other-9"}}]},
        {"role": "assistant", "tool_calls": [call], "reasoning": "thought-10"},
        {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"input": "odd-11"}}]},
        {"role": "assistant", "function_call": {"name": "legacy-12", "arguments": "args-13"}},
        {"role": "tool", "tool_call_id": "id-14", "content": "result-15"},
        tools=[
            {
                "type": "function",
                "function": {
                    "name": "tool-16",
                    "description": "about-17",
                    "parameters": {"properties": {"prop-18": {"enum": ["value-19"]}}},
                },
            },
            {"type": "custom", "custom": {"description": "odd-20"}},
        ],
        functions=[{"name": "fn-21", "description": "about-22"}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "format-23", "description": "about-24", "schema": {"const": "leaf-25"}},
        },
        prediction={"type": "content", "content": "guess-26"},
        stop=["stop-27"],
    )

    texts = set(prompt_texts(prompt))

    found = {text.rpartition("-")[2] for text in texts if "-" in text}
    assert found == {str(number) for number in range(1, 28)}


def test_an_inline_image_is_no_text_but_its_address_is() -> None:
    inline = read({"role": "user", "content": [{"image_url": PNG}]})
    remote = read({"role": "user", "content": [{"image_url": WEB[0]}]}, remote=True)

    assert list(prompt_texts(inline)) == []
    assert list(prompt_texts(remote)) == [WEB[0]]
