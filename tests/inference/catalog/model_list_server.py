"""A backend that only has a list of models, and remembers how it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ModelListServer:
    def __init__(self) -> None:
        self.status = 200
        self.body: Any = {"object": "list", "data": []}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.base_url = ""

    def offer(self, *models: Any) -> None:
        rows = [{"id": model} if isinstance(model, str) else model for model in models]
        self.body = {"object": "list", "data": rows}


@contextlib.contextmanager
def model_list_server() -> Iterator[ModelListServer]:
    state = ModelListServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            body = state.body if isinstance(state.body, bytes) else json.dumps(state.body).encode()
            self.send_response(state.status)
            for name, value in {"Content-Length": str(len(body)), **state.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        # It looks this often whether it is to stop; its own half a second would be waited out by every test.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        state.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        yield state
        server.shutdown()
        thread.join()
