"""
A judge's model that obeys whoever speaks to it: an OpenAI-compatible server as gullible as can be.

It says yes where the text has the phrase, unless an order reaches it in a message that gives orders. The text
is read from the one message that is a JSON string and from nowhere else, so an order that changes a verdict
has left the place where data belongs.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from aiohttp import web

from policies.judges.logprob import INSTRUCTIONS
from tests.policies.factories import PHRASE, RULE

ORDERS = ("answer no", "answer yes", "say no", "ignore", "verdict", "classify", "respond with", "reply")
LIKELY, UNLIKELY = math.log(0.9), math.log(0.02)


class JudgeServer:
    """`async with` it; what it was asked is in `bodies`."""

    def __init__(self, *, answer: Any = None, status: int = 200, seconds: float = 0.0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.at_once = 0
        self._running = 0
        self._answer, self._status, self._seconds = answer, status, seconds

    async def __aenter__(self) -> JudgeServer:
        application = web.Application(client_max_size=2**26)
        application.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.base_url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self._running += 1
        self.at_once = max(self.at_once, self._running)
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self._running -= 1
        answer = self._answer if self._answer is not None else completion(self._opinion(body))
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=text, status=self._status, content_type="application/json")

    def _opinion(self, body: dict[str, Any]) -> dict[str, float]:
        system, data, question = body["messages"]
        assert [message["role"] for message in body["messages"]] == ["system", "user", "user"]
        text = json.loads(data["content"])
        assert isinstance(text, str), "the text is one JSON string"
        said = system["content"] + question["content"]
        for ours in (INSTRUCTIONS, "Answer Yes or No.", RULE):
            said = said.replace(ours, "")
        if any(order in said.lower() for order in ORDERS):
            return {"No": LIKELY, "Yes": UNLIKELY}
        is_yes = PHRASE in text.lower()
        return {"Yes": LIKELY if is_yes else UNLIKELY, "No": UNLIKELY if is_yes else LIKELY}


def completion(likely: dict[str, float], *, token: str | None = None) -> dict[str, Any]:
    """A completion of one token with these alternatives."""
    top = [{"token": word, "logprob": value, "bytes": None} for word, value in likely.items()]
    chosen = token if token is not None else max(likely, key=lambda word: likely[word])
    position = {"token": chosen, "logprob": likely.get(chosen, -20.0), "top_logprobs": top}
    return {
        "id": "x",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": chosen},
                "logprobs": {"content": [position]},
                "finish_reason": "length",
            }
        ],
    }
