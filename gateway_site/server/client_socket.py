"""The sockets of clients: how much of an answer the system may keep for a client that does not read it."""

from __future__ import annotations

import asyncio
import contextlib
import socket

# The system would otherwise take some megabytes for each connection before writing to it has to wait, and a
# backend would be read, paid for and forgotten to fill them. What is on its way to the client is not limited:
# a long way takes as much as it needs.
MAX_UNSENT_BYTES = 64 * 1024


def bound_unsent_bytes(transport: asyncio.BaseTransport) -> None:
    """Let writing wait for the client once MAX_UNSENT_BYTES are unsent: backpressure for whoever writes."""
    connection = transport.get_extra_info("socket")
    # A Unix socket has no such option, and its buffer is small.
    if hasattr(socket, "TCP_NOTSENT_LOWAT") and connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
