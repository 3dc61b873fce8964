"""
Backend rows as objects that can be called. One for each row and process, made anew when the row changes.

All share one client and with it one pool of connections; those to an address that no row has any more are
closed by their idle time. A request that still runs on an old object ends on it.
"""

from __future__ import annotations

import threading
from typing import Any

from django.conf import settings

from gateway_site.http_client.client import Client, Timeouts
from gateway_site.http_client.ssrf_guard import AddressRefused, BaseUrl, parse_base_url
from inference.backends.base import InferenceBackend
from inference.backends.kinds import KINDS, BackendConfig, BackendKind
from inference.catalog import credentials_vault
from inference.catalog.credentials_vault import CredentialUnreadable
from inference.models import Backend

NO_ADDRESS = BaseUrl(text="", host="")


class BackendMisconfigured(Exception):
    """Why a row cannot become a backend, for an operator. Never holds the credential."""


def base_url_of(row: Backend) -> BaseUrl:
    """The row's address, checked again: the list of hosts may have changed since it was saved."""
    return parse_base_url(row.base_url, allowed_hosts=settings.GATEWAY_BACKEND_HOSTS)


def credential_of(row: Backend) -> str:
    return credentials_vault.unseal(row.credential_ciphertext) if row.credential_ciphertext else ""


def backend_for(row: Backend) -> InferenceBackend:
    """The object of this row, or BackendMisconfigured. Callable from any thread."""
    ciphertext = bytes(row.credential_ciphertext) if row.credential_ciphertext else None
    fingerprint = (row.name, row.kind, row.base_url, ciphertext, repr(sorted(row.options.items())))
    with _lock:
        kept = _made.get(row.pk)
        if kept is None or kept[0] != fingerprint:
            kept = _made[row.pk] = (fingerprint, _make(row))
        return kept[1]


def _make(row: Backend) -> InferenceBackend:
    kind = KINDS.get(row.kind)
    if kind is None:
        raise BackendMisconfigured(f"There is no kind of backend named {row.kind!r}.")
    try:
        return kind.make(_config_of(row, kind))
    except (AddressRefused, CredentialUnreadable, ValueError, TypeError, KeyError) as problem:
        raise BackendMisconfigured(str(problem)) from None


def _config_of(row: Backend, kind: BackendKind) -> BackendConfig:
    return BackendConfig(
        client=client,
        name=row.name,
        base_url=base_url_of(row) if kind.has_address else NO_ADDRESS,
        api_key=credential_of(row) if kind.has_credential else "",
        options={
            option.name: row.options[option.name] for option in kind.options if option.name in row.options
        },
    )


client = Client(
    Timeouts(
        connect=settings.GATEWAY_CONNECT_SECONDS,
        first_byte=settings.GATEWAY_FIRST_BYTE_SECONDS,
        between_bytes=settings.GATEWAY_BETWEEN_BYTES_SECONDS,
        total=settings.GATEWAY_DEADLINE_SECONDS,
    )
)
_lock = threading.Lock()
_made: dict[int, tuple[tuple[Any, ...], InferenceBackend]] = {}
