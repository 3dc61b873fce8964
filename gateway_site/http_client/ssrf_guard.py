"""
The guard against server-side request forgery (SSRF): which addresses may be connected to.

A model server on this machine or in this network is the normal case, so loopback and private addresses
are allowed. What is never a model server: link-local addresses and the metadata services where clouds hand
out credentials. They are refused when an address is saved, and again for every address that a name
resolves to, at the moment of connecting: a name can mean something else by then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

REFUSED_NETWORKS = [
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16",  # link-local; AWS, Google, Azure and others keep their metadata in it
        "fe80::/10",
        "fd00:ec2::254/128",  # AWS
        "fd20:ce::254/128",  # Google
        "100.100.100.200/32",  # Alibaba
        "168.63.129.16/32",  # Azure's host
        "192.0.0.192/32",  # Oracle
        "0.0.0.0/8",  # "this host": some systems connect it to loopback, no one means it
        "::/128",
        "224.0.0.0/4",
        "ff00::/8",
        "255.255.255.255/32",
    )
]
REFUSED_NAMES = {
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
    "metadata.oraclecloud.com",
}
# IPv6 ranges whose last 32 bits are an IPv4 address that the packet will reach.
_EMBEDDING_NETWORKS = [ipaddress.IPv6Network(network) for network in ("::/96", "64:ff9b::/96")]
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


class AddressRefused(ValueError):
    """Why this cannot be the address of a backend, in words for the operator who gave it."""


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A base address that was checked, without a slash at its end."""

    text: str
    host: str

    def __str__(self) -> str:
        return self.text


def parse_base_url(url: str, *, allowed_hosts: Sequence[str] = ()) -> BaseUrl:
    """
    The address in its plain form, or AddressRefused.

    With `allowed_hosts`, names and networks ("10.0.0.0/8") that an operator listed, no other is accepted.
    """
    if not url.isprintable() or any(character in url for character in " \\\t"):
        raise AddressRefused("The address has characters that do not belong in one.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused("This is not an address.") from None
    if parts.scheme not in ("http", "https"):
        raise AddressRefused("The address must start with http:// or https://.")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("The address must not hold a name or a password; the API key has its own field.")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise AddressRefused("The address must end with its path: no query, no fragment.")
    host = _plain_host(parts.hostname or "")
    _require_listed(host, allowed_hosts)
    netloc = f"[{host}]" if ":" in host else host
    if port is not None:
        netloc += f":{port}"
    return BaseUrl(f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}", host)


def is_refused(address: Address) -> bool:
    """Whether an address is refused, also as IPv4 that is mapped, translated or tunnelled in IPv6."""
    return any(form in network for form in _forms(address) for network in REFUSED_NETWORKS)


def _forms(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    forms: list[Address] = [address]
    if address.ipv4_mapped:
        forms.append(address.ipv4_mapped)
    if address.sixtofour:
        forms.append(address.sixtofour)
    if address.teredo:
        forms.extend(address.teredo)
    # ::1 is loopback, not 0.0.0.1.
    if not address.is_loopback and any(address in network for network in _EMBEDDING_NETWORKS):
        forms.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return forms


def _plain_host(host: str) -> str:
    host = host.lower().rstrip(".")
    if not host:
        raise AddressRefused("The address names no host.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise AddressRefused("The host is not a name.") from None
    address = _literal(host)
    if address is None:
        if host in REFUSED_NAMES:
            raise AddressRefused("This is where a cloud hands out credentials, not a backend.")
        return host
    if is_refused(address):
        raise AddressRefused("Link-local and metadata addresses cannot be backends.")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return str(address)


def _literal(host: str) -> Address | None:
    """The address that is written here, in any notation that the system's resolver would take."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    if all(_NUMBER.fullmatch(part) for part in host.split(".")):
        # inet_aton knows hexadecimal, octal and short forms, as getaddrinfo does.
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            raise AddressRefused("The host is a number that is no address.") from None
    return None


def _require_listed(host: str, allowed_hosts: Sequence[str]) -> None:
    if not allowed_hosts:
        return
    literal = _literal(host)
    for allowed in allowed_hosts:
        if host == allowed.lower().rstrip("."):
            return
        if literal is not None and "/" in allowed and literal in ipaddress.ip_network(allowed, strict=False):
            return
    raise AddressRefused("The host is not one of those that this deployment lists for backends.")


class Resolver(Protocol):
    """Looks up the addresses of a name."""

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of this name; OSError where there are none."""
        ...


class SystemResolver:
    """Looks names up as the operating system does."""

    async def resolve(self, host: str, port: int) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedResolver:
    """
    Resolves a name once for each connection and refuses it if any of its addresses is refused.

    The caller connects to exactly what is returned here, so there is no second look-up that could differ (DNS
    rebinding).
    """

    def __init__(self, resolver: Resolver | None = None) -> None:
        self._resolver = resolver or SystemResolver()

    async def resolve(self, host: str, port: int) -> list[str]:
        addresses = await self._resolver.resolve(host, port)
        for address in addresses:
            if is_refused(ipaddress.ip_address(address.partition("%")[0])):
                raise OSError("the name resolves to an address that is refused")
        return addresses
