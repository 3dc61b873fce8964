"""Columns of a model whose answers may be large enough to flood somebody."""

from __future__ import annotations

from tests.inference.customer import COLUMNS

SIZES = {**COLUMNS, "context_length": 200_000, "max_output_length": 100_000}
