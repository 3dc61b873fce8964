"""The table of dialects: each generation endpoint that is served, and documented, is one row."""

from __future__ import annotations

from typing import Any

from inference.dialects.base import Dialect
from inference.dialects.chat.dialect import CHAT
from inference.dialects.responses.dialect import RESPONSES

DIALECTS: tuple[Dialect[Any], ...] = (CHAT, RESPONSES)
