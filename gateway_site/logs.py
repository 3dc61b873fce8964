"""Logs of one JSON object a line, with the request's id and without secrets."""

from __future__ import annotations

import re
from typing import Any

import structlog

from gateway_site.api import request_id

# Every key we issue looks like the first; a token of someone else's follows the word, and is long.
SECRET_SHAPES = re.compile(r"\bgw[ka]_[0-9A-Za-z]{8,}|(?<=Bearer )\S{16,}", re.IGNORECASE)


def add_request_id(logger: Any, name: str, event: dict[str, Any]) -> dict[str, Any]:
    if identifier := request_id.current():
        event["request_id"] = identifier
    return event


def redact(logger: Any, name: str, event: dict[str, Any]) -> dict[str, Any]:
    """Remove secrets, last before rendering, so that a traceback is covered as well as a message."""
    return {key: _redacted(value) for key, value in event.items()}


def _redacted(value: Any) -> Any:
    return SECRET_SHAPES.sub("[redacted]", value) if isinstance(value, str) else value


def logging_settings(level: str) -> dict[str, Any]:
    """Settings for logging.config.dictConfig: everything to standard error, through structlog."""
    before = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_request_id,
        structlog.processors.format_exc_info,
    ]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": before,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    redact,
                    # Escapes control characters, so that a name cannot forge a line.
                    structlog.processors.JSONRenderer(),
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {"django.server": {"handlers": ["stderr"], "level": level, "propagate": False}},
    }
