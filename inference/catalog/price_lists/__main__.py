"""Answer the questions on standard input from the price list: `python -m inference.catalog.price_lists`."""

from __future__ import annotations

import sys

import msgspec

from inference.catalog.price_lists import genai_list
from inference.catalog.price_lists.entries import PriceQuestion

questions = msgspec.json.decode(sys.stdin.buffer.read(), type=list[PriceQuestion])
sys.stdout.buffer.write(msgspec.json.encode(genai_list.answer(questions)))
