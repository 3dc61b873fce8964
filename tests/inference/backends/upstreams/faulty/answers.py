"""The answers that the fault-injecting upstream has to offer, by the name of the model that asks for each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.inference.backends.upstreams.faulty.bodies import Usage, UsageOf, honest

End = Literal[
    "finish",
    "reset",
    "cut",
    "hang",
    "raw",
    "huge_line",
    "endless",
    "error",
    "nothing",
    "reset_before_headers",
    "close_before_headers",
    "hang_before_headers",
    "garbage_head",
]


@dataclass(frozen=True)
class Plain:
    """A whole answer: a status and a body."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    # Providers like to say which key was wrong.
    repeats_credential: bool = False

    def content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else json.dumps(self.body).encode()

    def for_request(self, headers: dict[str, str]) -> Plain:
        if not self.repeats_credential:
            return self
        credential = headers.get("x-api-key") or headers.get("authorization", "")
        return replace(
            self, body=_error(f"Incorrect key {credential}. See https://provider.example/keys?k={credential}")
        )


@dataclass(frozen=True)
class Script:
    """A stream: so many tokens of a kind, then an end."""

    tokens: int = 5
    kind: str = "content"
    delay: float = 0.0
    wait: float = 0.0
    opens: bool = True
    drips: bool = False
    tools: tuple[tuple[int, dict[str, Any]], ...] = ()
    end: End = "finish"
    raw: bytes = b""
    finish: str | None = "stop"
    usage_of: UsageOf = honest
    usage_counts: tuple[int | None, ...] = (None,)
    is_cumulative: bool = False
    closes: bool = True
    is_whole: bool = False


def _error(message: str, kind: str = "invalid_request_error", param: str | None = None) -> dict[str, Any]:
    return {"type": "error", "error": {"message": message, "type": kind, "param": param, "code": None}}


def _with(**changes: Any) -> UsageOf:
    """Honest usage, spoilt."""

    def usage_of(prompt: int, completion: int) -> Usage:
        usage = honest(prompt, completion)
        return usage and {**usage, **changes}

    return usage_of


# A long prompt with something of everything, as the figures of chat completions; Messages has fewer.
DETAILED: dict[str, Any] = {
    "prompt_tokens": 300_000,
    "total_tokens": 300_005,
    "prompt_tokens_details": {"cached_tokens": 1_000, "cache_write_tokens": 9_000, "audio_tokens": 200},
    "completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 1},
}
# More tokens than a small bound allows, and few enough to be believed.
OVER_HOLD = 5_000

HTML = b"<html><body><h1>502 Bad Gateway</h1><p>nginx at 10.0.0.7</p></body></html>"

PLAIN: dict[str, Plain] = {
    "400": Plain(400, _error("`max_tokens` must be at most 4096.", param="max_tokens")),
    "400_html": Plain(400, HTML, media_type="text/html"),
    "400_leaky": Plain(400, None, repeats_credential=True),
    "401": Plain(401, None, repeats_credential=True),
    "402": Plain(402, _error("Your account sk-live-operator is out of credit.", "billing_error")),
    "403": Plain(403, None, repeats_credential=True),
    "404": Plain(404, _error("The model `x` does not exist.", "not_found_error")),
    "408": Plain(408, None),
    "413": Plain(413, _error("The request is too large.", "request_too_large")),
    "422": Plain(422, {"detail": "messages: field required"}),
    "429": Plain(429, _error("Slow down.", "rate_limit_error"), {"Retry-After": "7"}),
    "429_bare": Plain(429, None),
    "429_date": Plain(429, None, {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}),
    "500_empty": Plain(500, None),
    "500_html": Plain(500, HTML, media_type="text/html"),
    "501": Plain(501, _error("`logprobs` is not implemented.")),
    "502": Plain(502, HTML, media_type="text/html"),
    "503": Plain(503, _error("Loading model", "unavailable_error"), {"Retry-After": "3"}),
    "504": Plain(504, HTML, media_type="text/html"),
    "529": Plain(529, _error("Overloaded", "overloaded_error")),
    "redirect": Plain(307, None, {"Location": "/elsewhere"}),
    "204": Plain(204, None),
    "html": Plain(200, HTML, media_type="text/html"),
    "json_garbage": Plain(200, b'{"choices": [', media_type="application/json"),
    "json_empty": Plain(200, b"", media_type="application/json"),
    "json_error": Plain(200, _error("It went wrong.", "server_error")),
    "json_huge": Plain(200, b'{"choices": "' + b"x" * 20_000_000 + b'"}'),
}

_CALL = {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": ""}}
_MORE = {"function": {"arguments": '{"city": "Kö'}}
_LAST = {"function": {"arguments": 'ln"}'}}
_SECOND = {"id": "call_b", "type": "function", "function": {"name": "time", "arguments": "{}"}}

SCRIPTS: dict[str, Script] = {
    "ok": Script(),
    "ok_tools": Script(
        tokens=0, tools=((0, _CALL), (0, _MORE), (0, _LAST), (1, _SECOND)), finish="tool_calls"
    ),
    "ok_reasoning": Script(kind="reasoning_content"),
    "ok_length": Script(finish="length"),
    "cumulative": Script(tokens=20, is_cumulative=True),
    "drip_bytes": Script(drips=True),
    # Time.
    "slow_headers": Script(wait=0.3),
    "hang_before_headers": Script(end="hang_before_headers"),
    "hang_after_headers": Script(tokens=0, opens=False, end="hang"),
    "hang_midstream": Script(end="hang"),
    "drip": Script(tokens=1000, delay=0.05),
    # Broken connections.
    "reset_before_headers": Script(end="reset_before_headers"),
    "close_before_headers": Script(end="close_before_headers"),
    "garbage_head": Script(end="garbage_head"),
    "reset_after_headers": Script(tokens=0, opens=False, end="reset"),
    "reset_midstream": Script(end="reset"),
    "cut_midstream": Script(end="cut"),
    "close_without_finish": Script(end="nothing"),
    "close_at_once": Script(tokens=0, opens=False, end="nothing"),
    "no_done": Script(closes=False),
    "no_finish": Script(finish=None),
    # Usage.
    "no_usage": Script(usage_counts=()),
    # With a `late_end`: every word and the finish are there, and the usage is still to come.
    "no_usage_yet": Script(usage_counts=(), closes=False),
    "no_usage_empty": Script(tokens=0, usage_counts=()),
    "usage_null": Script(usage_of=lambda prompt, completion: None),
    "usage_zero": Script(usage_of=_with(prompt_tokens=0, completion_tokens=0, total_tokens=0)),
    "usage_zero_empty": Script(
        tokens=0, usage_of=_with(prompt_tokens=0, completion_tokens=0, total_tokens=0)
    ),
    "usage_negative": Script(usage_of=_with(completion_tokens=-5)),
    "usage_float": Script(usage_of=_with(completion_tokens=5.5)),
    "usage_string": Script(usage_of=_with(completion_tokens="5")),
    "usage_bool": Script(usage_of=_with(completion_tokens=True)),
    "usage_nan": Script(usage_of=_with(completion_tokens=float("nan"))),
    "usage_huge": Script(usage_of=_with(completion_tokens=2**70)),
    "usage_total": Script(usage_of=_with(total_tokens=999)),
    "usage_cached": Script(usage_of=_with(prompt_tokens_details={"cached_tokens": 5000})),
    "usage_details": Script(usage_of=_with(**DETAILED)),
    "usage_details_cut": Script(usage_of=_with(**DETAILED), end="reset"),
    "usage_over_bound": Script(usage_of=_with(completion_tokens=1_000_000, total_tokens=1_000_011)),
    "usage_over_hold": Script(usage_of=_with(completion_tokens=OVER_HOLD, total_tokens=OVER_HOLD + 11)),
    "usage_two": Script(usage_counts=(3, None)),
    "usage_shrinking": Script(usage_counts=(None, 2)),
    # Content.
    "huge_line": Script(end="huge_line"),
    "endless": Script(tokens=0, end="endless"),
    "invalid_json": Script(end="raw", raw=b'data: {"choices": [{"delta": \n\n'),
    "invalid_first": Script(tokens=0, opens=False, end="raw", raw=b"data: nonsense\n\n"),
    "wrong_types": Script(end="raw", raw=b'data: {"type": 5, "choices": [{"index": "zero"}]}\n\n'),
    "wrong_index": Script(end="raw", raw=b'data: {"choices": [{"index": 7, "delta": {"content": "x"}}]}\n\n'),
    "invalid_utf8": Script(
        end="raw", raw=b'data: {"type":"x","choices": [{"index": 0, "delta": {"content": "\xff"}}]}\n\n'
    ),
    "error_midstream": Script(end="error"),
    "error_first": Script(tokens=0, opens=False, end="error"),
    "json": Script(is_whole=True),
}
