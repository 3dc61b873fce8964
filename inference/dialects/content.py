"""
Content parts, and the addresses in them.

The gateway never fetches an address. But backends do, from inside our network, so an address that a
client wrote is refused unless the deployment says that its backends may go out: `data:` is always fine,
http(s) by permission, anything else (file:, gopher:, `//host`) never.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from gateway_site.api.errors import InvalidRequest
from inference.events import ImagePart, Json, OtherPart, Part, TextPart

TEXT_TYPES = {"text", "input_text", "output_text"}
IMAGE_TYPES = {"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"}

# A name that promises an address. There, whatever is not plainly allowed is refused.
_NAMES_ADDRESS = re.compile(r"(?i)(?:ur[li]s?|href|src)$")
# Elsewhere, what a URL library would take for one: they skip leading blanks, and `\` is `/` to some.
# A bare `//` is left alone, because base64 of an MP3 starts so.
_LOOKS_LIKE_ADDRESS = re.compile(r"[\x00-\x20]*[A-Za-z][A-Za-z0-9+.\-]*:[\\/]")
_UNSAFE_IN_ADDRESS = re.compile(r"[\x00-\x20\x7f\\]")


def parts_of(raw: Json, param: str, *, remote: bool) -> Iterator[Part]:
    """One part of the request as neutral parts: a text, an image, or both when it holds both."""
    kind, text, image = raw.get("type"), raw.get("text"), raw.get("image_url")
    extra = {name: raw[name] for name in raw if name not in ("type", "text", "image_url")}
    if extra:
        _refuse_addresses(extra, param, remote=remote)
    is_text = kind in TEXT_TYPES or (kind is None and text is not None)
    if is_text or (image is not None and text):
        yield TextPart(text or "", extra if image is None else {})
    if image is not None:
        yield _image(image, extra, f"{param}.image_url", remote=remote)
    elif not is_text:
        yield OtherPart(kind or "", dict(raw))


def require_safe_image(url: str, param: str, *, remote: bool) -> None:
    """Refuse an image's address that is not a `data:` image, nor one of http(s) where those may go out."""
    if url[:5].lower() != "data:":
        _require_safe_address(url, param, remote=remote)
        return
    header, _, data = url[5:].partition(",")
    media_type, _, encoding = header.partition(";")
    if media_type.lower() not in IMAGE_TYPES or encoding.lower() != "base64":
        raise InvalidRequest(
            "A data: image must be base64 of image/png, image/jpeg, image/gif or image/webp.", param=param
        )
    try:
        is_empty = not binascii.a2b_base64(data.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidRequest("The data of the image is not valid base64.", param=param) from None
    if is_empty:
        raise InvalidRequest("The image is empty.", param=param)


def _image(image: Any, extra: Json, param: str, *, remote: bool) -> ImagePart:
    url, detail = (image.get("url"), image.get("detail")) if isinstance(image, dict) else (image, None)
    if not isinstance(url, str):
        raise InvalidRequest("An image is an address, or an object with its `url`.", param=param)
    if detail is not None and not isinstance(detail, str):
        raise InvalidRequest("The detail of an image is a string.", param=f"{param}.detail")
    require_safe_image(url, param, remote=remote)
    return ImagePart(url, detail, extra)


def _require_safe_address(url: str, param: str, *, remote: bool) -> None:
    try:
        address = urlsplit(url)
        is_web = address.scheme in ("http", "https") and bool(address.hostname) and address.username is None
    except ValueError:
        is_web = False
    if not is_web or _UNSAFE_IN_ADDRESS.search(url):
        raise InvalidRequest("This address is not accepted.", param=param)
    if not remote:
        raise InvalidRequest("Addresses are not fetched here. Send the data itself, as data:.", param=param)


def _refuse_addresses(fields: Json, param: str, *, remote: bool) -> None:
    waiting: list[tuple[str, str, Any]] = [(f"{param}.{name}", name, fields[name]) for name in fields]
    while waiting:
        path, name, node = waiting.pop()
        if isinstance(node, str):
            if node[:5].lower() == "data:":
                continue
            if _NAMES_ADDRESS.search(name) or _LOOKS_LIKE_ADDRESS.match(node):
                _require_safe_address(node, path, remote=remote)
        elif isinstance(node, dict):
            waiting.extend((f"{path}.{inner}", inner, node[inner]) for inner in node)
        elif isinstance(node, list):
            waiting.extend((f"{path}[{place}]", name, inner) for place, inner in enumerate(node))
