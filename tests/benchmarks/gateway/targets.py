"""What the gateway is compared with: nothing in between, nginx, a bare pass-through, and its peers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.gateway.load import Address, Cell, answers
from tests.benchmarks.gateway.process import Pinning, Server, memory_mib
from tests.harness.live_server import free_port

PEER_KEY = "sk-benchmark"
GET_LITELLM = (
    "python -m venv peers && peers/bin/pip install 'litellm[proxy]' uvloop httptools opentelemetry-api"
    " opentelemetry-sdk opentelemetry-exporter-otlp; then --litellm peers/bin/litellm"
)
GET_PORTKEY = "npm install --prefix peers @portkey-ai/gateway; then --portkey peers"
GET_NGINX = "install the package nginx (Debian: nginx-light)"

NGINX = """
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  upstream mock {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://mock;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@dataclass
class Target:
    """Something that answers chat completions, and what is known of it."""

    name: str
    address: Address
    server: Server
    version: str = ""
    # The processes of its database, if it has one of its own.
    database_process_id: int | None = None
    idle_memory_mib: dict[str, float] = field(default_factory=dict)
    memory_mib: dict[str, float] = field(default_factory=dict)

    def stop(self) -> None:
        self.server.stop()


@dataclass(frozen=True)
class Bench:
    """What all targets are made with."""

    directory: Path
    pinning: Pinning
    upstream: Server
    cells: Sequence[Cell]

    @property
    def upstream_url(self) -> str:
        return f"http://127.0.0.1:{self.upstream.port}"

    @property
    def models(self) -> list[str]:
        return sorted({cell.model for cell in self.cells})

    def serve(
        self, name: str, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
    ) -> Server:
        return Server(
            command,
            port=port,
            log=self.directory / f"{name}.log",
            environment=environment,
            cores=self.pinning.cores_for_target(),
        )

    def ready(self, target: Target) -> Target:
        """Once it has answered, so that nothing of its start is measured."""
        if not answers(target.address, self.cells[0]):
            words = target.server.last_words()
            target.stop()
            raise RuntimeError(f"{target.name} gives no answer. The end of what it wrote:\n{words}")
        target.idle_memory_mib = memory_mib(target.server.process.pid)
        return target


def bare(bench: Bench) -> Target:
    return Target("bare upstream", Address(bench.upstream.port), bench.upstream)


def nginx(bench: Bench, program: str) -> Target:
    port = free_port()
    directory = bench.directory / "nginx"
    directory.mkdir()
    configuration = directory / "nginx.conf"
    configuration.write_text(NGINX.format(directory=directory, upstream=bench.upstream.port, port=port))
    command = [program, "-e", "stderr", "-p", str(directory), "-c", str(configuration)]
    told = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stderr
    server = bench.serve("nginx", command, port)
    return bench.ready(Target("nginx proxy_pass", Address(port), server, told.strip().rpartition("/")[2]))


def pass_through(bench: Bench) -> Target:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.benchmarks.gateway.passthrough:application"]
    command += ["--port", str(port), "--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    command += ["--log-level", "warning", "--timeout-keep-alive", "75"]
    server = bench.serve("pass-through", command, port, {**os.environ, "UPSTREAM": bench.upstream_url})
    return bench.ready(Target("pass-through", Address(port), server))


def litellm(bench: Bench, program: str) -> Target:
    """Without a database. Prices, because models without one go through a slow search for it."""
    port = free_port()
    parameters = {
        "api_base": f"{bench.upstream_url}/v1",
        "api_key": "sk-upstream",
        "input_cost_per_token": 0.000001,
        "output_cost_per_token": 0.000002,
    }
    configuration = {
        "model_list": [
            {"model_name": model, "litellm_params": {"model": f"openai/{model}", **parameters}}
            for model in bench.models
        ],
        "general_settings": {"master_key": PEER_KEY},
        "litellm_settings": {"telemetry": False, "num_retries": 0},
    }
    path = bench.directory / "litellm.yaml"
    path.write_text(json.dumps(configuration))  # JSON is YAML
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    # Prices of the world come from a download otherwise.
    environment |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    environment |= {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR"}
    command = [program, "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    python = str(Path(program).parent / "python")
    ask = "from importlib.metadata import version; print(version('litellm'))"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False).stdout.strip()
    server = bench.serve("litellm", [*command, "--num_workers", "1"], port, environment)
    return bench.ready(Target("LiteLLM", Address(port, [PEER_KEY]), server, told))


def portkey(bench: Bench, script: Path) -> Target:
    port = free_port()
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{bench.upstream_url}/v1"}
    environment = {**os.environ, "NODE_ENV": "production"}
    command = [shutil.which("node") or "node", str(script), f"--port={port}", "--headless"]
    package = script.parent.parent / "package.json"
    told = json.loads(package.read_text())["version"] if package.exists() else ""
    server = bench.serve("portkey", command, port, environment)
    return bench.ready(Target("Portkey", Address(port, [PEER_KEY], headers), server, told))


def portkey_script(given: str | None) -> Path | None:
    """The server's own file, or the one below a folder that was given."""
    if given is None:
        return None
    path = Path(given).resolve()
    found = [path] if path.is_file() else sorted(path.rglob("gateway/build/start-server.js"))
    return found[0] if found else None


def references(
    bench: Bench, litellm_program: str | None, portkey_path: str | None, wants: Callable[[str], bool]
) -> tuple[list[Callable[[], Target]], list[str]]:
    """How to start each of those that can be had here, and a line for each that cannot."""
    nginx_program = shutil.which("nginx")
    litellm_program = litellm_program or shutil.which("litellm")
    script = portkey_script(portkey_path) if shutil.which("node") else None
    starts: list[Callable[[], Target]] = []
    missing = []
    if wants("nginx") and nginx_program:
        starts.append(lambda: nginx(bench, nginx_program))
    elif wants("nginx"):
        missing.append(f"nginx is left out: {GET_NGINX}")
    if wants("pass-through"):
        starts.append(lambda: pass_through(bench))
    if wants("litellm") and litellm_program:
        starts.append(lambda: litellm(bench, litellm_program))
    elif wants("litellm"):
        missing.append(f"LiteLLM is left out: {GET_LITELLM}")
    if wants("portkey") and script:
        starts.append(lambda: portkey(bench, script))
    elif wants("portkey"):
        missing.append(f"Portkey's gateway is left out (it needs node): {GET_PORTKEY}")
    return starts, missing
