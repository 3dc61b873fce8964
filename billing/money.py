"""Money as whole numbers, and as text: amounts in nano-USD, prices in pico-USD."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

NANO_DIGITS = 9
PICO_DIGITS = 12
PICO_IN_A_NANO = 1_000
# A price of a million tokens has fewer decimal places than that of one: $3 is 3,000,000 pico-USD a token.
PICO_DIGITS_OF_A_MILLION = PICO_DIGITS - 6
NANO_IN_A_CENT = 10_000_000
# What a signed 64-bit column holds: 9.2 billion dollars.
MAX_NANOUSD = 2**63 - 1


def parse_usd(text: str) -> int:
    """`"12.5"` as nano-USD. Refuses what is not a plain decimal or is finer than a nano-USD."""
    return _parse(text, NANO_DIGITS)


def parse_price(text: str) -> int:
    """USD per token (or image, or request) as pico-USD. Never negative."""
    value = _parse(text, PICO_DIGITS)
    if value < 0:
        raise ValueError(f"A price is not negative: {text!r}.")
    return value


def parse_per_million(text: str) -> int:
    """USD per million tokens as pico-USD per token. Never negative."""
    value = _parse(text, PICO_DIGITS_OF_A_MILLION)
    if value < 0:
        raise ValueError(f"A price is not negative: {text!r}.")
    return value


def usd(nanousd: int) -> str:
    """Nano-USD as a plain decimal string: no exponent, no trailing zeros, `"0"` for nothing."""
    return _print(nanousd, NANO_DIGITS)


def short_usd(nanousd: int) -> str:
    """Nano-USD for a glance, `$1,234.50`, rounded to cents; below a cent, exact. Never for a computation."""
    sign, amount = ("-" if nanousd < 0 else ""), abs(nanousd)
    if 0 < amount < NANO_IN_A_CENT:
        return f"{sign}${usd(amount)}"
    dollars, cents = divmod((amount + NANO_IN_A_CENT // 2) // NANO_IN_A_CENT, 100)
    return f"{sign}${dollars:,}.{cents:02}"


def price_text(picousd: int) -> str:
    """Pico-USD as a plain decimal string of USD, which `parse_price` reads back."""
    return _print(picousd, PICO_DIGITS)


def per_million(picousd: int) -> str:
    """Pico-USD per token as a plain decimal string of USD per million, which `parse_per_million` reads."""
    return _print(picousd, PICO_DIGITS_OF_A_MILLION)


def _parse(text: str, digits: int) -> int:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"{text!r} is not an amount in USD.") from None
    if not value.is_finite() or abs(value.adjusted()) > 30:
        raise ValueError(f"{text!r} is not an amount in USD.")
    # Shifted by hand: Decimal's own arithmetic rounds to the context's precision.
    sign, figures, exponent = value.as_tuple()
    shift = int(exponent) + digits
    number: int = int("".join(map(str, figures)))
    if shift < 0:
        number, finer = divmod(number, int(10**-shift))
        if finer:
            raise ValueError(f"{text!r} is finer than {digits} decimal places.")
    else:
        number *= int(10**shift)
    if number > MAX_NANOUSD:
        raise ValueError(f"{text!r} is too large.")
    return -number if sign else number


def _print(number: int, digits: int) -> str:
    whole, fraction = divmod(abs(number), 10**digits)
    text = f"{whole}.{fraction:0{digits}d}".rstrip("0").rstrip(".")
    return f"-{text}" if number < 0 else text
