"""What a client reads of a provider's words about its request: the reason, and no credential or address."""

from __future__ import annotations

import time

import pytest

from gateway_site.http_client.failures import MAX_MESSAGE_CHARACTERS, shown_message

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

HIDDEN = [
    ("key=abcd1234efgh is bad", "key=[removed] is bad"),
    ("api_key: abcd1234", "api_key: [removed]"),
    ('{"api-key": "abcd1234"}', '{"api-key": "[removed]"}'),
    ("X-Api-Key: abcd1234 was refused", "X-Api-Key: [removed] was refused"),
    ("?a=1&access_token=abc.def&b=2", "?a=1&access_token=[removed]&b=2"),
    ("client_secret='s3cr3t!' is wrong", "client_secret='[removed]' is wrong"),
    ("password = hunter2, user bob", "password = [removed], user bob"),
    ("Authorization: Basic dXNlcjpwYXNz failed", "Authorization: [removed] failed"),
    ("authorization: Bearer abc", "authorization: [removed]"),
    ('"Authorization": "Token abc"', '"Authorization": "[removed]"'),
    ("got Bearer abc.def-ghi", "got Bearer [removed]"),
    ("bearer: abcdef", "bearer: [removed]"),
    ("id AKIAIOSFODNN7EXAMPLE unknown", "id [removed] unknown"),
    ("id ASIAIOSFODNN7EXAMPLE unknown", "id [removed] unknown"),
    ("google AIzaSyA1234567890abcdefghijklmnopqrstuv", "google [removed]"),
    (f"token {JWT} expired", "token [removed] expired"),
    (f"cut {JWT[:40]}", "cut [removed]"),
    ("secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY here", "secret [removed] here"),
    ("sig 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "sig [removed]"),
    ("hash 9f86d081884c7d659a2feaa0c55ad015", "hash [removed]"),
    ("pair dXNlcjpwYXNzd29yZDEyMzQ1Njc4OTA=", "pair [removed]"),
    ("hf_abcdefgh12345678", "[removed]"),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnop", "[removed]"),
    ("xoxb-123456789012-abcdefABCDEF", "[removed]"),
    ("mail ops@provider.example for help", "mail [removed] for help"),
    ("host fe80::1ff:fe23:4567:890a is down", "host [removed] is down"),
    ("host [2001:db8::7]:8000 is down", "host [removed] is down"),
    ("at ip-10-0-0-7.ec2.internal", "at [removed]"),
    ("at vllm-0.models.svc.cluster.local:8000", "at [removed]"),
    ("-----BEGIN PRIVATE KEY----- MIIEvQIBADAN -----END PRIVATE KEY-----", "[removed]"),
]
SHOWN = [
    "`max_tokens` must be at most 4096.",
    "This model's maximum context length is 128000 tokens, however you requested 131072 tokens.",
    "messages.3.content.0.tool_use_id: Input should match pattern '^[a-zA-Z0-9_-]+$'",
    "Invalid schema for function 'get_current_weather_for_location': missing required properties.",
    "Unsupported value: 'response_format.json_schema.additionalProperties' must be false.",
    "The model `meta-llama/Llama-3.3-70B-Instruct-Turbo-Free` does not support tools.",
    "claude-sonnet-4-5-20250929 does not support both temperature and top_p.",
    "gpt-4o-realtime-preview-2024-12-17 needs `stream`.",
    "Unknown parameter: 'max_completion_tokens'; token limits: 1 to 8192.",
    "tool_choice.disable_parallel_tool_use: Extra inputs are not permitted",
    "No tool call found for function call output with call_id call_a.",
    'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',
    "the token limit is 5: a token is 4 characters",
    "a keyboard, a monkey, donkeys: fine",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "größe 東京 😀",
]


@pytest.mark.parametrize(("said", "shown"), HIDDEN, ids=lambda text: text[:40])
def test_what_looks_like_a_credential_or_an_address_is_hidden(said: str, shown: str) -> None:
    assert shown_message(said, credential="") == shown


@pytest.mark.parametrize("said", SHOWN, ids=lambda text: text[:40])
def test_what_helps_the_client_is_kept(said: str) -> None:
    assert shown_message(said, credential="") == said


def test_a_credential_that_the_bound_would_cut_is_hidden_before_it() -> None:
    said = "x " * (MAX_MESSAGE_CHARACTERS // 2 - 5) + "AKIAIOSFODNN7EXAMPLE"

    assert "AKIA" not in (shown_message(said, credential="") or "")


@pytest.mark.parametrize(
    "piece",
    ["a", "A1", "a-", "key=", "a.", "Bearer ", "eyJ", ":", "a@", "-----BEGIN ", '"', "0", "://", "a_"],
)
def test_no_text_makes_hiding_slow(piece: str) -> None:
    started = time.monotonic()

    shown_message(piece * 100_000, credential="")

    assert time.monotonic() - started < 2
