"""Where a backend may live: this machine and this network, and nowhere that hands out credentials."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway_site.http_client.ssrf_guard import AddressRefused, GuardedResolver, parse_base_url
from tests.gateway_site.http_client.helpers import FakeResolver

ALLOWED = [
    ("https://api.openai.com/v1", "https://api.openai.com/v1"),
    ("https://api.openai.com/v1/", "https://api.openai.com/v1"),
    ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ("http://localhost:11434/v1", "http://localhost:11434/v1"),
    ("http://localhost.:11434/v1", "http://localhost:11434/v1"),
    ("http://10.1.2.3:8000/v1", "http://10.1.2.3:8000/v1"),
    ("http://192.168.0.9", "http://192.168.0.9"),
    ("http://100.64.0.1", "http://100.64.0.1"),
    ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ("http://[fd00::5]:8000", "http://[fd00::5]:8000"),
    ("http://[::ffff:127.0.0.1]:8000", "http://127.0.0.1:8000"),
    ("http://2130706433:8000", "http://127.0.0.1:8000"),
    ("http://0x7f.1:8000", "http://127.0.0.1:8000"),
    ("http://0177.0.0.1:8000", "http://127.0.0.1:8000"),
    ("HTTP://VLLM.Internal:8000/V1", "http://vllm.internal:8000/V1"),
    ("http://bücher.example/v1", "http://xn--bcher-kva.example/v1"),
]
REFUSED = [
    "http://169.254.169.254",
    "http://169.254.169.254./latest",
    "http://169.254.0.1:8000/v1",
    "http://2852039166",
    "http://0xa9fea9fe",
    "http://0xA9.0xFE.0xA9.0xFE",
    "http://0251.0376.0251.0376",
    "http://169.254.43518",
    "http://[::ffff:169.254.169.254]",
    "http://[::ffff:a9fe:a9fe]",
    "http://[::169.254.169.254]",
    "http://[64:ff9b::169.254.169.254]",
    "http://[2002:a9fe:a9fe::1]",
    "http://[fe80::1]",
    "http://[fe80::1%25eth0]:8000",
    "http://[fd00:ec2::254]/latest",
    "http://100.100.100.200",
    "http://168.63.129.16",
    "http://metadata.google.internal/computeMetadata/v1",
    "http://METADATA.google.internal.",
    "http://metadata",
    "http://0.0.0.0:8000",
    "http://[::]:8000",
    "http://224.0.0.1",
    "http://user:secret@vllm.internal",
    "http://vllm.internal@169.254.169.254",
    "http://vllm.internal\\@169.254.169.254",
    "http://169.254.169.254 .example",
    "ftp://vllm.internal",
    "file:///etc/passwd",
    "gopher://vllm.internal",
    "vllm.internal:8000",
    "http://",
    "http://:8000",
    "http://vllm.internal:99999",
    "http://vllm.internal/v1?key=secret",
    "http://vllm.internal/v1#x",
    "http://vllm.internal/\r\nHost: x",
    "http://4294967296",
    "http://0x7f000001ff",
    "",
]


@pytest.mark.parametrize(("url", "plain"), ALLOWED)
def test_an_address_of_a_model_server_is_accepted(url: Any, plain: Any) -> None:
    assert str(parse_base_url(url)) == plain


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_that_ssrf_would_use_is_refused(url: Any) -> None:
    with pytest.raises(AddressRefused):
        parse_base_url(url)


def test_a_refusal_does_not_repeat_the_address() -> None:
    with pytest.raises(AddressRefused) as refusal:
        parse_base_url("http://user:hunter2@vllm.internal")

    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://api.openai.com/v1", True),
        ("https://API.openai.com./v1", True),
        ("https://api.openai.com.evil.example", False),
        ("https://evil.example", False),
        ("http://10.9.9.9:8000", True),
        ("http://0x0a090909:8000", True),
        ("http://11.0.0.1:8000", False),
        ("http://127.0.0.1", False),
    ],
)
def test_a_list_of_hosts_leaves_no_other(url: Any, is_allowed: Any) -> None:
    allowed_hosts = ["api.openai.com", "10.0.0.0/8"]

    if is_allowed:
        parse_base_url(url, allowed_hosts=allowed_hosts)
    else:
        with pytest.raises(AddressRefused):
            parse_base_url(url, allowed_hosts=allowed_hosts)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1%eth0", "::ffff:169.254.169.254", "0.0.0.7"])
def test_a_name_that_comes_to_mean_a_refused_address_is_not_connected(address: Any) -> None:
    resolver = GuardedResolver(FakeResolver("10.0.0.1", address))

    with pytest.raises(OSError, match="refused"):
        asyncio.run(resolver.resolve("rebinding.example", 80))


def test_a_name_in_this_network_is_resolved() -> None:
    resolver = GuardedResolver(FakeResolver("10.0.0.1", "127.0.0.1"))

    assert asyncio.run(resolver.resolve("vllm.internal", 80)) == ["10.0.0.1", "127.0.0.1"]


def test_numeric_notations_that_slip_past_the_parser_meet_the_resolver() -> None:
    async def resolve() -> None:
        await GuardedResolver().resolve("2852039166", 80)

    with pytest.raises(OSError, match="refused"):
        asyncio.run(resolve())
