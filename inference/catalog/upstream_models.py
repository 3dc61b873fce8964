"""Asking a backend which models it has: whether it is there, and what could be in the catalog."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway_site.http_client.addresses import AddressRefused, GuardedResolver
from gateway_site.http_client.connection import Connection, Limits, Origin
from gateway_site.http_client.dialing import Dialer
from gateway_site.http_client.request_head import request_of_get
from inference.backends.anthropic.backend import VERSION
from inference.backends.registry import base_url_of, credential_of
from inference.catalog.credentials_vault import CredentialUnreadable
from inference.models import Backend

SECONDS = 10
MAX_BYTES = 16 * 1024 * 1024
# What servers call the number of tokens that a model reads and writes in one request.
CONTEXT_NAMES = ("context_length", "max_model_len", "context_window", "max_input_tokens")


class UpstreamTrouble(Exception):
    """What is wrong with a backend, in one line for an operator. Nothing that the backend said."""


@dataclass(frozen=True, slots=True)
class UpstreamModel:
    id: str
    context_length: int | None


async def fetch_models(backend: Backend) -> list[UpstreamModel]:
    """The backend's own list, or UpstreamTrouble."""
    try:
        url, headers = _request(backend)
        body = await _get(url, headers)
    except (AddressRefused, CredentialUnreadable) as problem:
        raise UpstreamTrouble(str(problem)) from None
    except TimeoutError:
        raise UpstreamTrouble(f"It did not answer within {SECONDS} seconds.") from None
    except OSError as problem:
        raise UpstreamTrouble(f"The conversation failed: {type(problem).__name__}.") from None
    return _models_in(body)


def _request(backend: Backend) -> tuple[str, dict[str, str]]:
    address, credential = str(base_url_of(backend)), credential_of(backend)
    if backend.kind == Backend.Kind.ANTHROPIC:
        headers = {"anthropic-version": VERSION}
        if credential:
            headers["x-api-key"] = credential
        return f"{address.removesuffix('/v1')}/v1/models?limit=1000", headers
    return f"{address}/models", {"Authorization": f"Bearer {credential}"} if credential else {}


async def _get(url: str, headers: dict[str, str]) -> bytes:
    origin, request = request_of_get(url, headers)
    loop = asyncio.get_running_loop()
    limits = Limits(SECONDS, SECONDS, loop.time() + SECONDS)
    connection = await _dialled(origin)
    try:
        connection.send((request, b""), limits, is_keeper=False)
        _require_success(await connection.head())
        body = bytearray()
        while chunk := await connection.read():
            body += chunk
            if len(body) > MAX_BYTES:
                raise UpstreamTrouble("Its list of models is too large.")
        return bytes(body)
    finally:
        connection.abort()


async def _dialled(origin: Origin) -> Connection:
    try:
        return await Dialer(asyncio.get_running_loop(), GuardedResolver()).dial(origin, SECONDS)
    except TimeoutError:
        raise
    except OSError as problem:
        raise UpstreamTrouble(f"It cannot be reached: {problem.strerror or 'no address'}.") from None


def _require_success(status: int) -> None:
    if status in (401, 403):
        raise UpstreamTrouble(f"It refuses the API key (status {status}).")
    if status == 404:
        raise UpstreamTrouble("It has no list of models there (status 404). Does the address lack /v1?")
    if status != 200:
        raise UpstreamTrouble(f"It answers with status {status}.")


def _models_in(body: bytes) -> list[UpstreamModel]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        answer = None
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise UpstreamTrouble("What it answers is not a list of models.")
    return [
        UpstreamModel(row["id"], _context_of(row))
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("id"), str)
    ]


def _context_of(row: dict[str, Any]) -> int | None:
    named = [row.get(name) for name in CONTEXT_NAMES]
    return next((value for value in named if type(value) is int and value > 0), None)
