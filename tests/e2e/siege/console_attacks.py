"""Attacks on the console: its log-in form, and its lists by a person who may only look."""

from __future__ import annotations

import re
from functools import lru_cache

from tests.e2e.siege.raw_http import HOST, exchange, head
from tests.e2e.siege.target import Target

BOUNDARY = "siege"
# One character of three bytes that its compatibility form replaces by eighteen.
LIGATURE = "\ufdfa"
LOGIN = "/admin/login/"


def multipart(fields: dict[str, str]) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    return "".join([*parts, f"--{BOUNDARY}--\r\n"]).encode()


def login_request(port: int, token: str, username: str, password: str) -> bytes:
    body = multipart({"csrfmiddlewaretoken": token, "username": username, "password": password})
    headers = {
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
        "Content-Length": str(len(body)),
        "Cookie": f"csrftoken={token}",
        "Origin": f"http://{HOST}:{port}",
        "Connection": "close",
    }
    return head("POST", LOGIN, headers).replace(HOST.encode(), f"{HOST}:{port}".encode(), 1) + body


async def csrf_token(port: int) -> str:
    answer = await exchange(port, head("GET", LOGIN, {"Connection": "close"}))
    found = re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', answer.content)
    return found[1].decode() if found else "a" * 32


@lru_cache
def _huge_login(port: int) -> bytes:
    # Any token of the right length will do: the form and the cookie carry the same one.
    return login_request(port, "a" * 32, LIGATURE * 3_100_000, "password")


async def huge_login_name(target: Target) -> str:
    return str((await exchange(target.port, _huge_login(target.port))).status or "closed")


async def _look(target: Target, path: str) -> str:
    request = head("GET", path, {"Cookie": target.console_cookie, "Connection": "close"})
    return str((await exchange(target.port, request)).status or "closed")


async def regular_expression(target: Target) -> str:
    return await _look(target, "/admin/organization/projectkey/?name__regex=%5E(a%2B)%2B%24")


async def long_search(target: Target) -> str:
    return await _look(target, f"/admin/organization/projectkey/?q={'a%20' * 10_000}")
