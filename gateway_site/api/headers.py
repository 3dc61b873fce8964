"""Request headers, counted. Django joins repeated ones with a comma: two bad values, one good one."""

from __future__ import annotations

from collections.abc import Iterable

RawHeaders = Iterable[tuple[bytes, bytes]]


def values_of(headers: RawHeaders, name: str) -> list[str]:
    """Every value that was sent under `name`, in order, from `scope["headers"]`."""
    wanted = name.lower().encode()
    return [value.decode("latin-1").strip(" \t") for key, value in headers if key.lower() == wanted]


def values_by_name(headers: RawHeaders, names: tuple[str, ...]) -> dict[str, list[str]]:
    """Every value that was sent under each of `names`, in one pass over the headers."""
    wanted = {name.lower().encode(): name for name in names}
    found: dict[str, list[str]] = {name: [] for name in names}
    for key, value in headers:
        name = wanted.get(key.lower())
        if name is not None:
            found[name].append(value.decode("latin-1").strip(" \t"))
    return found
