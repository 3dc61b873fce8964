from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway_site.server import uvicorn_server


class Command(BaseCommand):
    help = "Run the production server."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--workers", type=int, default=1)

    def handle(self, *, host: str, port: int, workers: int, **options: Any) -> None:
        if workers < 1:
            raise CommandError("--workers must be at least 1.")
        self.stderr.write(f"Serving on http://{host}:{port} with {workers} worker(s).")
        uvicorn_server.run(host=host, port=port, workers=workers)
