"""
The request of token counting: an input as the Messages API has it.

These types validate, and they are the OpenAPI components: one source. Content blocks and tools are free-form
here; `messages/parse.py` reads them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from inference.dialects.chat.request import FreeForm


class MessagesTurn(Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[FreeForm]


# Unspecified: count-tokens-fields. All of the SDK's, of its usual client and of its beta one. What does not
# change the number of tokens is accepted and has no effect.
class CountTokensRequest(Struct, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=200)]
    messages: Annotated[list[MessagesTurn], Meta(min_length=1)]
    system: str | list[FreeForm] | None = None
    tools: list[FreeForm] | None = None
    tool_choice: FreeForm | None = None
    thinking: FreeForm | None = None
    output_config: FreeForm | None = None
    output_format: FreeForm | None = None
    cache_control: FreeForm | None = None
    speed: Literal["standard", "fast"] | None = None
    compaction: FreeForm | None = None
    context_management: FreeForm | None = None
    mcp_servers: list[FreeForm] | None = None


class TokenCount(Struct, forbid_unknown_fields=True):
    input_tokens: Annotated[int, Meta(ge=0)]
