from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.money import MAX_NANOUSD, parse_price, parse_usd, price_text, short_usd, usd


@given(st.integers(-MAX_NANOUSD, MAX_NANOUSD))
def test_amounts_print_and_parse_to_themselves(amount: int) -> None:
    text = usd(amount)

    assert parse_usd(text) == amount
    assert "e" not in text.lower()
    assert not (text.endswith("0") and "." in text)


@given(st.integers(0, 10**12))
def test_prices_print_and_parse_to_themselves(picousd: int) -> None:
    assert parse_price(price_text(picousd)) == picousd


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (123_456, "0.000123456"), (-5 * 10**8, "-0.5"), (10**10, "10")]
)
def test_amounts_are_plain_decimals(amount: int, text: str) -> None:
    assert usd(amount) == text


@pytest.mark.parametrize(
    "text", ["", "ten", "NaN", "Infinity", "1e400", "0.0000000001", "99999999999", "1,5", "0x10", "--1"]
)
def test_what_is_not_an_exact_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"USD|finer|large"):
        parse_usd(text)


def test_a_negative_price_is_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        parse_price("-0.1")


@pytest.mark.parametrize(
    ("nanousd", "shown"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (9_999_999, "$0.009999999"),
        (10_000_000, "$0.01"),
        (14_999_999, "$0.01"),
        (15_000_000, "$0.02"),
        (999_995_000_000, "$1,000.00"),
        (-1_234_500_000_000, "-$1,234.50"),
    ],
)
def test_an_amount_for_a_glance(nanousd: int, shown: str) -> None:
    assert short_usd(nanousd) == shown
