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
    """The conversation, or InvalidRequest naming the item at fault."""
    model = _ModelTurn()
    for place, item in enumerate(items):
        checkpoint()
        at = f"input[{place}]"
        kind = item.get("type", "message")
        if kind == "reasoning":
            yield from model.think(_thoughts(item, at, unseal))
        elif kind == "message" and item.get("role") == "assistant":
            yield from model.say(_said(item, at, remote=remote))
        elif kind == "function_call":
            model.calls.append(_call(item, at))
        elif kind == "web_search_call":
            continue  # what it found is in the text that follows; no other server takes it back
        else:
            yield from model.end()
            yield _others_turn(kind, item, at, remote=remote)
    yield from model.end()


class _ModelTurn:
    """One turn of the model, as its items come."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.thoughts: list[str] = []
        self.said: list[Part] = []
        self.calls: list[ToolCall] = []

    def think(self, thoughts: str) -> Iterator[Turn]:
        # After a call that waits for its answer the turn cannot end, whatever comes.
        if self.said and not self.calls:
            yield from self.end()
        if thoughts:
            self.thoughts.append(thoughts)

    def say(self, parts: list[Part]) -> Iterator[Turn]:
        if self.said and not self.calls:
            yield from self.end()
        self.said += parts

    def end(self) -> Iterator[Turn]:
        # Thoughts alone are no turn: a model that ran out of room while it thought has said nothing.
        if self.said or self.calls:
            yield Turn(
                role="assistant",
                content=_plain(self.said),
                reasoning="\n\n".join(self.thoughts) or None,
                tool_calls=tuple(self.calls),
            )
        self._begin()


def _plain(parts: list[Part]) -> str | tuple[Part, ...] | None:
    """A single text as the string that every server takes."""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return tuple(parts) or None


def _others_turn(kind: Any, item: Json, at: str, *, remote: bool) -> Turn:
    if kind == "message":
        return _message(item, at, remote=remote)
    if kind == "function_call_output":
        return Turn(
            role="tool",
            tool_call_id=_text(item, "call_id", at),
            content=_content(item.get("output"), f"{at}.output", remote=remote),
        )
    if kind == "item_reference":
        raise InvalidRequest("Nothing is stored here: send the item itself.", param=f"{at}.type")
    raise InvalidRequest("Items of this type are not accepted.", param=f"{at}.type")


def _message(item: Json, at: str, *, remote: bool) -> Turn:
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidRequest("The role is one of user, assistant, system, developer.", param=f"{at}.role")
    return Turn(role=ROLES[role], content=_content(item.get("content"), f"{at}.content", remote=remote))


def _said(item: Json, at: str, *, remote: bool) -> list[Part]:
    said = _content(item.get("content"), f"{at}.content", remote=remote)
    return list(said) if isinstance(said, tuple) else [TextPart(said)] if said else []


def _thoughts(item: Json, at: str, unseal: Unseal) -> str:
    sealed = item.get("encrypted_content")
    if isinstance(sealed, str) and sealed:
        try:
            return unseal(sealed)
        except ValueError:
            raise InvalidRequest(
                "This is no reasoning that was sealed here for your organization.",
                param=f"{at}.encrypted_content",
            ) from None
    # The full text where there is one; else the summary, which is better than nothing.
    written = item.get("content") or item.get("summary") or []
    if not isinstance(written, list):
        raise InvalidRequest("Reasoning is a list of texts.", param=f"{at}.content")
    return "\n".join(_text(part, "text", at) for part in written)


def _call(item: Json, at: str) -> ToolCall:
    return ToolCall(_text(item, "call_id", at), _text(item, "name", at), _text(item, "arguments", at))


def _text(item: Any, name: str, at: str) -> str:
    value = item.get(name) if isinstance(item, dict) else None
    if not isinstance(value, str):
        raise InvalidRequest(f"`{name}` must be a string.", param=f"{at}.{name}")
    return value


def _content(raw: Any, at: str, *, remote: bool) -> str | tuple[Part, ...]:
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, list):
        raise InvalidRequest("Content is a string or a list of parts.", param=at)
    return tuple(_part(part, f"{at}[{place}]", remote=remote) for place, part in enumerate(raw))


def _part(raw: Any, at: str, *, remote: bool) -> Part:
    kind = raw.get("type") if isinstance(raw, dict) else None
    match kind:
        case "input_text" | "output_text" | "text":
            return TextPart(_text(raw, "text", at))
        case "refusal":
            # What the model said, in words. As a text it can go back to any server.
            return TextPart(_text(raw, "refusal", at))
        case "input_image":
            return _image(raw, at, remote=remote)
        case "input_file":
            return _file(raw, at)
    raise InvalidRequest("Parts of this type are not accepted.", param=f"{at}.type")


def _image(raw: Json, at: str, *, remote: bool) -> Part:
    url, detail = _text(raw, "image_url", at), raw.get("detail")
    # As chat writes it, so that one place decides which addresses may go out.
    image = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    (part,) = content.parts_of(image, at, remote=remote)
    return part


def _file(raw: Json, at: str) -> Part:
    for elsewhere in ("file_id", "file_url"):
        if raw.get(elsewhere) is not None:
            raise InvalidRequest("Send the file itself, as `file_data`.", param=f"{at}.{elsewhere}")
    data = _text(raw, "file_data", at)
    if data[:5].lower() != "data:":
        raise InvalidRequest("The data of a file is written as data:.", param=f"{at}.file_data")
    described = {"file_data": data}
    if isinstance(name := raw.get("filename"), str):
        described["filename"] = name
    return OtherPart("file", {"type": "file", "file": described})
