"""Asking a backend which models it has: whether it is there, and what could be in the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from inference.backend_registry import base_url_of, credential_of
from inference.backends.addresses import AddressRefused, GuardedResolver
from inference.backends.anthropic import VERSION
from inference.credentials_vault import CredentialUnreadable
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
    except aiohttp.ClientConnectorError as problem:
        raise UpstreamTrouble(f"It cannot be reached: {problem.os_error.strerror or 'no address'}.") from None
    except (aiohttp.ClientError, OSError) as problem:
        # The names of these exceptions tell enough; their texts may hold the request's headers.
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
    connector = aiohttp.TCPConnector(resolver=GuardedResolver())
    async with (
        aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
        ) as session,
        session.get(url, headers=headers, allow_redirects=False) as response,
    ):
        if response.status in (401, 403):
            raise UpstreamTrouble(f"It refuses the API key (status {response.status}).")
        if response.status == 404:
            raise UpstreamTrouble("It has no list of models there (status 404). Does the address lack /v1?")
        if response.status != 200:
            raise UpstreamTrouble(f"It answers with status {response.status}.")
        body = bytearray()
        while chunk := await response.content.readany():
            body += chunk
            if len(body) > MAX_BYTES:
                raise UpstreamTrouble("Its list of models is too large.")
        return bytes(body)


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
