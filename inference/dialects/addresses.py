"""
Addresses that a client wrote into a prompt.

The gateway never fetches an address. But backends do, from inside our network, so an address is refused
wherever a backend could fetch it, unless the deployment says that its backends may go out: `data:` is always
fine, http(s) by permission, anything else (file:, gopher:, `//host`) never. Text may speak of addresses as it
likes.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from gateway_site.api.bodies.strict_json import MAX_NAME_LENGTH, printable
from gateway_site.api.errors import InvalidRequest
from inference.prompt import Json

# A name that promises an address. There, whatever is not plainly allowed is refused.
_NAMES_ADDRESS = re.compile(r"(?i)(?:ur[li]s?|href|src)$")
# Elsewhere, what a URL library would take for one. `\` is `/` to some, and after the scheme of a web address
# some want no slash at all. A bare `//` is left alone, because base64 of an MP3 starts so.
_LOOKS_LIKE_ADDRESS = re.compile(
    r"(?i)(?:[a-z][a-z0-9+.\-]*:)+[\\/]|(?:https?|wss?|ftps?|sftp|file|gopher|dict|tftp|ldaps?|jar):[^\s]"
)
# They skip blanks and control characters before an address, and line ends and tabs within it.
_SKIPPED_BEFORE = "".join(map(chr, range(0x21)))
_SKIPPED_WITHIN = str.maketrans("", "", "\t\r\n")
# An address is known by its beginning.
_BEGINNING_LENGTH = 256
_UNSAFE_IN_ADDRESS = re.compile(r"[\x00-\x20\x7f\\]")
# Members of a JSON schema that say where another schema is.
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def require_safe_address(url: str, param: str, *, remote: bool) -> None:
    """Refuse an address that is not of http(s), or any where backends may not go out."""
    try:
        address = urlsplit(url)
        is_web = address.scheme in ("http", "https") and bool(address.hostname) and address.username is None
    except ValueError:
        is_web = False
    if not is_web or _UNSAFE_IN_ADDRESS.search(url):
        raise InvalidRequest("This address is not accepted.", param=param)
    if not remote:
        raise InvalidRequest("Addresses are not fetched here. Send the data itself, as data:.", param=param)


def refuse_addresses(fields: Json, param: str, *, remote: bool) -> None:
    """Refuse addresses anywhere in `fields`, which stand at `param`, by name or by what they look like."""
    _refuse_in(fields, "", [param], remote)


def _refuse_in(node: Any, name: str, path: list[str | int], remote: bool) -> None:
    # The path is put together where something is refused, and not for each of a thousand values.
    if type(node) is str:
        if node[:5].lower() != "data:" and (_NAMES_ADDRESS.search(name) or _looks_like_address(node)):
            require_safe_address(node, _param_of(path), remote=remote)
    elif type(node) is dict:
        for inner, child in node.items():
            path.append(inner)
            _refuse_in(child, inner, path, remote)
            path.pop()
    elif type(node) is list:
        for index, child in enumerate(node):
            path.append(index)
            _refuse_in(child, name, path, remote)
            path.pop()


def _looks_like_address(text: str) -> bool:
    if ":" not in text:
        return False
    beginning = text.lstrip(_SKIPPED_BEFORE)[:_BEGINNING_LENGTH].translate(_SKIPPED_WITHIN)
    return _LOOKS_LIKE_ADDRESS.match(beginning) is not None


def refuse_remote_references(schema: Any, param: str) -> None:
    """Refuse a JSON schema that refers to anything outside of itself: whoever reads it might fetch that."""
    _refuse_references(schema, [param])


def _refuse_references(node: Any, path: list[str | int]) -> None:
    if type(node) is dict:
        for name, child in node.items():
            path.append(name)
            if type(child) is str:
                if name in _REFERENCES and not child.startswith("#"):
                    raise InvalidRequest(
                        "Schemas are not fetched here. A reference must be to the schema itself: `#/…`.",
                        param=_param_of(path),
                    )
            else:
                _refuse_references(child, path)
            path.pop()
    elif type(node) is list:
        for index, child in enumerate(node):
            path.append(index)
            _refuse_references(child, path)
            path.pop()


def _param_of(path: list[str | int]) -> str:
    """Write a path into the body as an error names it: `messages[0].content[1].file.url`."""
    steps = (f"[{step}]" if type(step) is int else f".{step}" for step in path)
    return printable("".join(steps)[1:][:MAX_NAME_LENGTH])
