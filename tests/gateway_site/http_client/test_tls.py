"""TLS to a backend: who it is gets checked, and where the check fails nothing was sent."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway_site.api.errors import BackendUnreachable
from gateway_site.http_client import dialing
from gateway_site.http_client.client import Client
from gateway_site.http_client.ssrf_guard import GuardedResolver
from tests.gateway_site.http_client.helpers import HASTY, STREAM, FakeResolver, ask
from tests.gateway_site.http_client.raw_server import RawServer


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: Any) -> Path:
    """A key and a certificate for localhost that nobody but itself has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test backend")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path: Path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def tls(certificate: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusted(certificate: Any, monkeypatch: Any) -> None:
    context = dialing._tls()
    context.load_verify_locations(certificate)
    monkeypatch.setattr(dialing, "TLS", context)


@pytest.mark.usefixtures("trusted")
def test_it_works(run: Any, tls: Any) -> None:
    async def main() -> list[int]:
        async with RawServer(tls=tls) as server, Client(HASTY) as client:
            for _ in range(3):
                assert await ask(client, server.url, body=b"x" * 200_000) == b"{}"
            assert await ask(client, f"https://localhost:{server.port}") == b"{}"
            return server.requests

    assert run(main) == [3, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("trusted")
def test_cancelling_a_request_closes_its_connection(run: Any, tls: Any) -> None:
    async def say_half(peer: Any) -> None:
        await peer.next_request()
        await peer.say(STREAM)
        await peer.reader.read()

    async def main() -> None:
        async with RawServer(say_half, tls=tls) as server, Client(HASTY) as client:
            asking = asyncio.ensure_future(ask(client, server.url))
            await asyncio.sleep(0.2)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert asking.cancelled()
            await asyncio.wait_for(server.left.wait(), 1)

    run(main)


def test_a_certificate_that_nobody_trusts_is_refused(run: Any, tls: Any) -> None:
    assert_never_sent(run, tls, "localhost")


@pytest.mark.usefixtures("trusted")
def test_a_certificate_for_another_name_is_refused(run: Any, tls: Any) -> None:
    assert_never_sent(run, tls, "other.example")


def assert_never_sent(run: Any, tls: ssl.SSLContext, host: str) -> None:
    dispatches = 0

    async def dispatch() -> None:
        nonlocal dispatches
        dispatches += 1

    async def main() -> list[int]:
        resolver = GuardedResolver(FakeResolver("127.0.0.1"))
        async with RawServer(tls=tls) as server, Client(HASTY, resolver) as client:
            with pytest.raises(BackendUnreachable):
                await ask(client, f"https://{host}:{server.port}", dispatch)
            return server.requests

    assert sum(run(main)) == 0
    assert dispatches == 0
