"""
A server that comes back at once when it is killed: everything is loaded once, each child is a fork of that.

    python -m tests.e2e.streams.crash_server PORT      prints the id of each child that serves

Starting Python anew would take seconds a kill. The parent has no thread and no connection when it forks, so
each child begins as a fresh process does.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

import uvicorn


def serve(listener: socket.socket) -> None:
    config = uvicorn.Config(
        "gateway_site.asgi:application", lifespan="on", access_log=False, log_config=None, log_level="error"
    )
    uvicorn.Server(config).run(sockets=[listener])


def main(port: int) -> None:
    import gateway_site.asgi  # noqa: F401 - loaded before the first fork
    from inference.tokenizer import counter

    counter("o200k_base")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
    # Told to stop, the children's death by its hand is the last.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            serve(listener)
            os._exit(0)
        print(child, flush=True)  # noqa: T201 - read by the test
        try:
            os.waitpid(child, 0)
        except SystemExit:
            os.kill(child, signal.SIGKILL)
            raise


if __name__ == "__main__":
    main(int(sys.argv[1]))
