"""
A backend's own list of models, over HTTP: what could be in the catalog, and whether the backend answers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway_site.http_client.connection import ExchangeTimeouts, Origin, UpstreamConnection
from gateway_site.http_client.dialing import Dialer
from gateway_site.http_client.request_head import request_of_get
from gateway_site.http_client.ssrf_guard import GuardedResolver

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
        body = await _get(url, headers)
    except TimeoutError:
        raise ModelListFailed(f"It did not answer within {SECONDS} seconds.") from None
    except OSError as problem:
        raise ModelListFailed(f"The conversation failed: {type(problem).__name__}.") from None
    return _models_in(body)


async def _get(url: str, headers: dict[str, str]) -> bytes:
    origin, request = request_of_get(url, headers)
    loop = asyncio.get_running_loop()
    limits = ExchangeTimeouts(SECONDS, SECONDS, loop.time() + SECONDS)
    connection = await _dial(origin)
    try:
        connection.send((request, b""), limits, keep_alive=False)
        _require_success(await connection.head())
        body = bytearray()
        while chunk := await connection.read():
            body += chunk
            if len(body) > MAX_BYTES:
                raise ModelListFailed("Its list of models is too large.")
        return bytes(body)
    finally:
        connection.abort()


async def _dial(origin: Origin) -> UpstreamConnection:
    try:
        return await Dialer(asyncio.get_running_loop(), GuardedResolver()).dial(origin, SECONDS)
    except TimeoutError:
        raise
    except OSError as problem:
        raise ModelListFailed(f"It cannot be reached: {problem.strerror or 'no address'}.") from None


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
