"""
A backend's own list of models, over HTTP: what could be in the catalog, and whether the backend answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from gateway_site.http_client.client import Client, ConnectFailed, ResponseTooLarge

SECONDS = 10
MAX_BYTES = 16 * 1024 * 1024
# What servers call the number of tokens that a model reads and writes in one request.
CONTEXT_NAMES = ("context_length", "max_model_len", "context_window", "max_input_tokens")


class ModelListFailed(Exception):
    """What is wrong with a backend, in one line for an operator. Never the words of the backend."""


@dataclass(frozen=True, slots=True)
class UpstreamModel:
    """One entry of the list, with its context length where the backend names one."""

    id: str
    context_length: int | None


async def fetch_model_list(url: str, headers: dict[str, str]) -> list[UpstreamModel]:
    """The models that a GET of this address lists, or ModelListFailed."""
    try:
        async with Client() as client:
            # The client ends with this one exchange, so no connection is to be kept alive.
            response = await client.fetch(
                url, headers={**headers, "Connection": "close"}, seconds=SECONDS, max_bytes=MAX_BYTES
            )
    except TimeoutError:
        raise ModelListFailed(f"It did not answer within {SECONDS} seconds.") from None
    except ConnectFailed as problem:
        raise ModelListFailed(f"It cannot be reached: {problem.strerror}.") from None
    except ResponseTooLarge:
        raise ModelListFailed("Its list of models is too large.") from None
    except OSError as problem:
        raise ModelListFailed(f"The conversation failed: {type(problem).__name__}.") from None
    _require_success(response.status)
    return _models_in(response.body)


def _require_success(status: int) -> None:
    if status in (401, 403):
        raise ModelListFailed(f"It refuses the API key (status {status}).")
    if status == 404:
        raise ModelListFailed("It has no list of models there (status 404). Does the address lack /v1?")
    if status != 200:
        raise ModelListFailed(f"It answers with status {status}.")


def _models_in(body: bytes) -> list[UpstreamModel]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        answer = None
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise ModelListFailed("What it answers is not a list of models.")
    return [
        UpstreamModel(row["id"], _context_of(row))
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("id"), str)
    ]


def _context_of(row: dict[str, Any]) -> int | None:
    named = [row.get(name) for name in CONTEXT_NAMES]
    return next((value for value in named if type(value) is int and value > 0), None)
