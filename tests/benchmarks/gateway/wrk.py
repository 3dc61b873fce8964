"""
wrk as the client, where it is installed: cheaper than ours, so that a fast target is not held up by it.

It counts no request that hangs and cuts off what is under way at the end. So the target is asked once more
afterwards, and what was cut is told. Its percentiles are corrected for coordinated omission, which makes the
high ones look worse than ours; at a concurrency of 1, where they are compared, our own client is used.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.benchmarks.gateway.load import HANG_SECONDS, PATH, Address, Cell, Measured, answers

SCRIPT = """
local keys = {%(keys)s}
local turn = 0
wrk.method = "POST"
wrk.body = %(body)s
%(headers)s
local requests = {}
function init(args)
  for number, key in ipairs(keys) do
    wrk.headers["Authorization"] = "Bearer " .. key
    requests[number] = wrk.format(nil, "%(path)s")
  end
end
function request()
  turn = turn %% #requests + 1
  return requests[turn]
end
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\\n{"requests":%%d,"seconds":%%f,"p50":%%f,"p99":%%f,' ..
    '"connect":%%d,"read":%%d,"write":%%d,"status":%%d,"timeout":%%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
"""


def _text(value: str) -> str:
    """A string for Lua, which takes the escapes of JSON that can occur here."""
    return json.dumps(value)


def drive(program: str, address: Address, cell: Cell, seconds: float, directory: Path) -> Measured:
    """As `gateway_load.drive`, for answers that are not streams."""
    script = directory / "chat.lua"
    headers = {"Content-Type": "application/json", **address.headers}
    script.write_text(
        SCRIPT
        % {
            "keys": ", ".join(_text(key) for key in address.keys),
            "body": _text(cell.body.decode()),
            "headers": "\n".join(
                f"wrk.headers[{_text(name)}] = {_text(value)}" for name, value in headers.items()
            ),
            "path": PATH,
        }
    )
    whole_seconds = max(round(seconds), 1)
    command = [program, "--threads", "1", "--connections", str(cell.concurrency)]
    command += ["--duration", f"{whole_seconds}s", "--timeout", f"{HANG_SECONDS}s", "--script", str(script)]
    run = subprocess.run(
        [*command, f"http://127.0.0.1:{address.port}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=whole_seconds + 2 * HANG_SECONDS,
    )
    said = json.loads(run.stdout.strip().splitlines()[-1])
    kinds = ("connect", "read", "write", "status", "timeout")
    errors = {kind: said[kind] for kind in kinds if said[kind]}
    answered = said["requests"] - said["status"]
    if not answers(address, cell):
        errors["hung afterwards"] = 1
    else:
        answered += 1
    return Measured(
        seconds=said["seconds"],
        answered=answered,
        per_second=(said["requests"] - said["status"]) / said["seconds"],
        errors=errors,
        cut=cell.concurrency,
        p50_ms=said["p50"],
        p99_ms=said["p99"],
        client="wrk",
    )
