"""A price part is one entry of PARTS: with two more, everything that handles prices handles them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture
def seen(process_environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.billing.prices.toy_parts"]
    done = subprocess.run(command, env=process_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_one_entry_makes_another_part_of_a_price(seen: dict[str, Any]) -> None:
    assert {"--prompt-price", "--page-price", "--video-input-price"} <= set(seen["options"])
    assert seen["form"]["page"] == "Each."
    assert "video_input" in seen["form"]
    # Those within another part come last, as clients know them.
    whole = ["prompt", "completion", "image", "request", "page"]
    assert seen["pricing"] == [*whole, "input_cache_read", "input_video"]

    # 100 prompt tokens at the dearest price of one, that of video.
    assert seen["hold"] == 100 * 3 + 10 * 2 + 2 * 7_000
    assert seen["cost"] == 50 * 1 + 20 // 2 + 30 * 3 + 10 * 2 + 2 * 7_000
    bill = {
        "prompt": [50, 50],
        "cached prompt": [20, 10],
        "video input": [30, 90],
        "completion": [10, 20],
        "document page": [2, 14_000],
    }
    assert seen["bill"] == bill
    assert list(seen["bill"]) == list(bill)

    assert seen["migration"] == []

    assert (seen["is_alive"], seen["is_price_kept"], seen["is_use_kept"]) == (True, True, True)
    assert seen["charged"] == seen["cost"]
    assert seen["lines"] == {f"gpt, {item}": amounts for item, amounts in bill.items()}
