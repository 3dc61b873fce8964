from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from gateway_site.quickstart import local_model
from gateway_site.quickstart.demo import OPERATOR, ORGANIZATION, PROJECT, Demo, prepare_demo, prepare_models
from gateway_site.server import uvicorn_server

HOST = "127.0.0.1"

FIRST_RUN = """
Customer key   {customer_key}
Admin key      {admin_key}
               (both are shown this once)

Try it in another terminal:

  curl {address}/v1/chat/completions \\
    -H "Authorization: Bearer {customer_key}" -H "Content-Type: application/json" \\
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "What is a gateway?"}}]}}'

or with `pip install openai`:

  from openai import OpenAI

  client = OpenAI(base_url="{address}/v1", api_key="{customer_key}")
  stream = client.chat.completions.create(
      model="{model}", messages=[{{"role": "user", "content": "What is a gateway?"}}], stream=True
  )
  for chunk in stream:
      print(chunk.choices[0].delta.content or "", end="", flush=True)
"""
LATER_RUN = """
The organization {organization} is kept as it was. Keys are shown only when they are made; for new ones:

  python manage.py create_admin_key {organization} another
  python manage.py create_project_key {project} another
"""


class Command(BaseCommand):
    help = "Run the gateway on embedded defaults, with a demo organization."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *, port: int, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        uvicorn_server.prepare_static_files()
        uvicorn_server.require_free_port(HOST, port)
        demo = prepare_demo()
        with local_model.running(preferred_port=port + 1) as local:
            model = prepare_models(local_base_url=local.base_url)
            self._greet(demo, f"http://{HOST}:{port}", model, local.problem)
            uvicorn_server.run(host=HOST, port=port, workers=1)

    def _greet(self, demo: Demo, address: str, model: str, problem: str) -> None:
        login = (
            f"user {OPERATOR}, password {demo.password}" if demo.password else f"user {OPERATOR}, as before"
        )
        self.stdout.write(f"\nConsole        {address}/admin/   ({login})")
        self.stdout.write(f"API            {address}/v1       (described at {address}/docs/)")
        self.stdout.write(f"Models         {address}/v1/models (with a key), {model} among them")
        if problem:
            self.stdout.write(f"               no local model: {problem}; the simulator answers")
        text = FIRST_RUN if demo.admin_key else LATER_RUN
        self.stdout.write(
            text.format(
                address=address,
                model=model,
                customer_key=demo.customer_key,
                admin_key=demo.admin_key,
                organization=ORGANIZATION,
                project=PROJECT,
            )
        )
        self.stdout.flush()
