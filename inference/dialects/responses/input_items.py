"""
The items of a response's `input` as turns of a conversation.

A stateless client sends back what it was given: thoughts, calls, messages, each an item of its own. In a
conversation the model's items up to the next answer of a tool or a person are one turn; servers refuse a
call that stands apart from the turn that made it.

Items are read leniently: an SDK sends its own keys along (`parsed`, `status: null`), and nothing but what is
read here goes on to a backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gateway_site.api.bodies.checkpoints import checkpoint
from gateway_site.api.errors import InvalidRequest
from inference.dialects import content
from inference.prompt import Json, OtherPart, Part, Role, TextPart, ToolCall, Turn

# Gives the thoughts that an `encrypted_content` holds; ValueError if it is not one of ours.
Unseal = Callable[[str], str]

ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "developer",
}


def turns_of(items: list[dict[str, Any]], unseal: Unseal, *, remote: bool) -> Iterator[Turn]:
    """Yield the turns of the conversation, or raise InvalidRequest naming the item at fault."""
    model = _ModelTurn()
    for index, item in enumerate(items):
        checkpoint()
        param = f"input[{index}]"
        kind = item.get("type", "message")
        if kind == "reasoning":
            yield from model.add_reasoning(_reasoning_of(item, param, unseal))
        elif kind == "message" and item.get("role") == "assistant":
            yield from model.add_parts(_assistant_parts(item, param, remote=remote))
        elif kind == "function_call":
            model.calls.append(_function_call(item, param))
        elif kind == "web_search_call":
            continue  # what it found is in the text that follows; no other server takes it back
        else:
            yield from model.end()
            yield _other_turn(kind, item, param, remote=remote)
    yield from model.end()


class _ModelTurn:
    """One turn of the model as it grows, item by item."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.reasoning: list[str] = []
        self.parts: list[Part] = []
        self.calls: list[ToolCall] = []

    def add_reasoning(self, text: str) -> Iterator[Turn]:
        # After a call that waits for its answer the turn cannot end, whatever comes.
        if self.parts and not self.calls:
            yield from self.end()
        if text:
            self.reasoning.append(text)

    def add_parts(self, parts: list[Part]) -> Iterator[Turn]:
        if self.parts and not self.calls:
            yield from self.end()
        self.parts += parts

    def end(self) -> Iterator[Turn]:
        # Thoughts alone are no turn: a model that ran out of room while it thought has said nothing.
        if self.parts or self.calls:
            yield Turn(
                role="assistant",
                content=_plain(self.parts),
                reasoning="\n\n".join(self.reasoning) or None,
                tool_calls=tuple(self.calls),
            )
        self._begin()


def _plain(parts: list[Part]) -> str | tuple[Part, ...] | None:
    """Write a single text as the string that every server takes."""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return tuple(parts) or None


def _other_turn(kind: Any, item: Json, param: str, *, remote: bool) -> Turn:
    if kind == "message":
        return _message(item, param, remote=remote)
    if kind == "function_call_output":
        return Turn(
            role="tool",
            tool_call_id=_string_field(item, "call_id", param),
            content=_content(item.get("output"), f"{param}.output", remote=remote),
        )
    if kind == "item_reference":
        raise InvalidRequest("Nothing is stored here: send the item itself.", param=f"{param}.type")
    raise InvalidRequest("Items of this type are not accepted.", param=f"{param}.type")


def _message(item: Json, param: str, *, remote: bool) -> Turn:
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidRequest("The role is one of user, assistant, system, developer.", param=f"{param}.role")
    return Turn(role=ROLES[role], content=_content(item.get("content"), f"{param}.content", remote=remote))


def _assistant_parts(item: Json, param: str, *, remote: bool) -> list[Part]:
    written = _content(item.get("content"), f"{param}.content", remote=remote)
    return list(written) if isinstance(written, tuple) else [TextPart(written)] if written else []


def _reasoning_of(item: Json, param: str, unseal: Unseal) -> str:
    sealed = item.get("encrypted_content")
    if isinstance(sealed, str) and sealed:
        try:
            return unseal(sealed)
        except ValueError:
            raise InvalidRequest(
                "This is no reasoning that was sealed here for your organization.",
                param=f"{param}.encrypted_content",
            ) from None
    # The full text where there is one; else the summary, which is better than nothing.
    written = item.get("content") or item.get("summary") or []
    if not isinstance(written, list):
        raise InvalidRequest("Reasoning is a list of texts.", param=f"{param}.content")
    return "\n".join(_string_field(part, "text", param) for part in written)


def _function_call(item: Json, param: str) -> ToolCall:
    return ToolCall(
        _string_field(item, "call_id", param),
        _string_field(item, "name", param),
        _string_field(item, "arguments", param),
    )


def _string_field(item: Any, name: str, param: str) -> str:
    value = item.get(name) if isinstance(item, dict) else None
    if not isinstance(value, str):
        raise InvalidRequest(f"`{name}` must be a string.", param=f"{param}.{name}")
    return value


def _content(raw: Any, param: str, *, remote: bool) -> str | tuple[Part, ...]:
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, list):
        raise InvalidRequest("Content is a string or a list of parts.", param=param)
    return tuple(_part(part, f"{param}[{index}]", remote=remote) for index, part in enumerate(raw))


def _part(raw: Any, param: str, *, remote: bool) -> Part:
    kind = raw.get("type") if isinstance(raw, dict) else None
    match kind:
        case "input_text" | "output_text" | "text":
            return TextPart(_string_field(raw, "text", param))
        case "refusal":
            # What the model said, in words. As a text it can go back to any server.
            return TextPart(_string_field(raw, "refusal", param))
        case "input_image":
            return _image(raw, param, remote=remote)
        case "input_file":
            return _file(raw, param)
    raise InvalidRequest("Parts of this type are not accepted.", param=f"{param}.type")


def _image(raw: Json, param: str, *, remote: bool) -> Part:
    url, detail = _string_field(raw, "image_url", param), raw.get("detail")
    # As chat writes it, so that one place decides which addresses may go out.
    image = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    (part,) = content.parts_of(image, param, remote=remote)
    return part


def _file(raw: Json, param: str) -> Part:
    for elsewhere in ("file_id", "file_url"):
        if raw.get(elsewhere) is not None:
            raise InvalidRequest("Send the file itself, as `file_data`.", param=f"{param}.{elsewhere}")
    data = _string_field(raw, "file_data", param)
    if data[:5].lower() != "data:":
        raise InvalidRequest("The data of a file is written as data:.", param=f"{param}.file_data")
    described = {"file_data": data}
    if isinstance(name := raw.get("filename"), str):
        described["filename"] = name
    return OtherPart("file", {"type": "file", "file": described})
