"""
A backend that attacks its gateway, over raw sockets. The name of the model says how.

    with hostile_upstream() as url:                beside a test, in a process of its own
    python -m tests.inference.backends.upstreams.hostile.server     the same by hand; it prints its address

All attacks at once, for a minute, beside a neighbour who wants to be served:

    HOSTILE_SECONDS=60 python -m pytest tests/e2e/attacks/test_hostile_backends.py -n 0 -s
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

from tests.gateway_site.http_client.raw_server import Peer, RawServer
from tests.harness.live_server import ROOT
from tests.inference.backends.upstreams.hostile.answers import ATTACKS


async def answering(peer: Peer) -> None:
    """Good answers leave the connection open; after an attack it is closed."""
    name = "good"
    while name == "good" and await peer.next_request():
        name = json.loads(peer.body)["model"]
        await ATTACKS[name](peer)


@contextlib.contextmanager
def hostile_upstream() -> Iterator[str]:
    """Its address. A process of its own, so that it floods while the test's interpreter is busy."""
    command = [sys.executable, "-m", "tests.inference.backends.upstreams.hostile.server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def _serve() -> None:
    async with RawServer(answering) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve())
