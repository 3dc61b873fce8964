"""Content parts: texts, images and others, with their addresses checked as `addresses` says."""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from typing import Any

from gateway_site.api.errors import InvalidRequest
from inference.dialects.addresses import refuse_addresses, require_safe_address
from inference.prompt import ImagePart, Json, OtherPart, Part, TextPart

TEXT_TYPES = {"text", "input_text", "output_text"}
IMAGE_TYPES = {"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"}


def parts_of(raw: Json, param: str, *, remote: bool) -> Iterator[Part]:
    """One part of the request as neutral parts: a text, an image, or both when it holds both."""
    kind, text, image = raw.get("type"), raw.get("text"), raw.get("image_url")
    extra = {name: raw[name] for name in raw if name not in ("type", "text", "image_url")}
    if extra:
        refuse_addresses(extra, param, remote=remote)
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
        require_safe_address(url, param, remote=remote)
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
