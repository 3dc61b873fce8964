"""
Takes credentials and addresses out of a text that somebody else wrote.

By shape: what is named like a secret, what has a provider's prefix, what is too random for a word of a
language or the name of a model. Pure, and quick for the few thousand characters that are read of a text.
"""

from __future__ import annotations

import ipaddress
import re

REMOVED = "[removed]"

_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://\S+", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_IPV4 = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_IPV6 = re.compile(r"\[([0-9a-f:.]{2,45})\](?::\d+)?|(?<![\w:])([0-9a-f:.]{2,45})(?![\w:])", re.IGNORECASE)
_INTERNAL_HOST = re.compile(
    r"(?<![\w.-])(?:localhost|(?:[\w-]{1,63}\.){1,8}(?:internal|local|localdomain|lan|corp|intranet|svc))"
    r"(?![\w-])(?::\d+)?",
    re.IGNORECASE,
)
_PEM = re.compile(r"-----BEGIN .*?(?:-----END [A-Z ]{1,40}-----|\Z)", re.DOTALL)

_QUOTED_NAME_END = r"[\"']?\s{0,3}"
_AUTHORIZATION = re.compile(
    rf"(authorization{_QUOTED_NAME_END}[:=]\s{{0,3}}[\"']?)"
    r"(?:(?:basic|bearer|token|digest|negotiate|aws4-hmac-sha256)\s{1,3})?[^\s\"',;]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\bbearer[:=]?\s{1,3}[\"']?)[^\s\"',;]+", re.IGNORECASE)
# After "=" whatever it is; after ":" a word may as well be the reason ("api_key: required").
_NAMED = r"(?<![\w-])[\w-]{0,40}?(?:key|token|secret|password|passwd|pwd|credentials?|signature|sig)"
_ASSIGNED = re.compile(rf"({_NAMED}{_QUOTED_NAME_END}=\s{{0,3}}[\"']?)[^\s\"',;&]+", re.IGNORECASE)
_DECLARED = re.compile(
    rf"({_NAMED}{_QUOTED_NAME_END}:\s{{0,3}}[\"']?)(?!\[removed\]|[a-z]+(?:[^\w]|$))[^\s\"',;&]+",
    re.IGNORECASE,
)

# How providers begin their keys, where what follows need not look random.
_PREFIXED = re.compile(
    r"\b(?:(?:[spr]k|gsk|csk|hf|gh[oprsu]|github_pat|glpat|xox[a-z]|xai|pplx|nvapi|key|sess|gw[ka])[-_]|eyJ|ya29\.)"
    r"[\w*.~+/=-]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{8,}|\bAIza[\w-]{20,}",
    re.IGNORECASE,
)
_RUN = re.compile(r"[A-Za-z0-9+/_*-]{12,}={0,2}")
_SEGMENT = re.compile(r"[A-Za-z0-9*]+")
_BASE64_RUN = re.compile(r"[A-Za-z0-9+/]{20,}")
_HEX = re.compile(r"[0-9a-f]+", re.IGNORECASE)
# Beside letters, in the part of a name that is random: "01A09q90" is, "20250929" and "70B" are not.
_LEAST_SEGMENT = 8
_LEAST_MIXED_RUN = 20
_LEAST_DIGITS_RUN = 24


def without_secrets(text: str) -> str:
    """The text with `[removed]` in place of what may be a credential, or say where somebody's servers are."""
    text = _PEM.sub(REMOVED, text)
    for pattern in (_URL, _EMAIL, _INTERNAL_HOST, _IPV4):
        text = pattern.sub(REMOVED, text)
    text = _IPV6.sub(_without_ipv6, text)
    for pattern in (_AUTHORIZATION, _BEARER, _ASSIGNED, _DECLARED):
        text = pattern.sub(_keeping_the_name, text)
    text = _PREFIXED.sub(REMOVED, text)
    return _RUN.sub(_without_random, text)


def _keeping_the_name(match: re.Match[str]) -> str:
    return match[1] + REMOVED


def _without_ipv6(match: re.Match[str]) -> str:
    found = match[1] or match[2]
    if found.count(":") < 2:
        return match[0]
    try:
        ipaddress.ip_address(found.rstrip(".:") if not found.endswith("::") else found)
    except ValueError:
        return match[0]
    return REMOVED


def _without_random(match: re.Match[str]) -> str:
    return REMOVED if _is_random(match[0]) else match[0]


def _is_random(run: str) -> bool:
    if any(_is_random_base64(part) for part in _BASE64_RUN.findall(run)):
        return True
    # `prefix-random`, as most keys are, and what a provider has masked with asterisks.
    return any(
        len(part) >= _LEAST_SEGMENT and (_is_mixed(part) or "*" in part) for part in _SEGMENT.findall(run)[1:]
    )


def _is_random_base64(part: str) -> bool:
    digits = sum(map(str.isdigit, part))
    if digits == len(part):
        return False
    if len(part) >= _LEAST_DIGITS_RUN and (digits >= 4 or _HEX.fullmatch(part)):
        return True
    has_both_cases = part.lower() != part and part.upper() != part
    return len(part) >= _LEAST_MIXED_RUN and digits > 0 and has_both_cases


def _is_mixed(part: str) -> bool:
    return not part.isalpha() and not part.isdigit()
