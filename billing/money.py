"""
Money as whole numbers: amounts in nano-USD, prices in pico-USD. Nothing here touches a database.

One function turns quantities into an amount, for the hold and for the charge, and it rounds once, up, at
the end. It only grows when a quantity grows, so a charge within the quantities that were held for is
within the hold.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from msgspec import Struct

NANO_DIGITS = 9
PICO_DIGITS = 12
PICO_IN_A_NANO = 1_000
NANO_IN_A_CENT = 10_000_000
# What a signed 64-bit column holds: 9.2 billion dollars.
MAX_NANOUSD = 2**63 - 1
# More of anything than one request can have; keeps a backend's nonsense out of the arithmetic.
MAX_QUANTITY = 10**12

PROMPT = "prompt"
CACHED_PROMPT = "cached prompt"
COMPLETION = "completion"
IMAGE = "image"
REQUEST = "request"
RECONCILED = "reconciled"


class Price(Struct, frozen=True):
    """What a model costs, in pico-USD each. Zero is a price: it means free."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    image: int = 0
    request: int = 0

    def __post_init__(self) -> None:
        for value in (self.prompt, self.cached, self.completion, self.image, self.request):
            if type(value) is not int or not 0 <= value <= MAX_NANOUSD:
                raise ValueError(f"A price must be a whole number of pico-USD, not {value!r}.")


class Quantities(Struct, frozen=True):
    """What one request used, over all its completions. `cached` tokens are among the `prompt` tokens."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    images: int = 0

    def __post_init__(self) -> None:
        for value in (self.prompt, self.cached, self.completion, self.images):
            if type(value) is not int or not 0 <= value <= MAX_QUANTITY:
                raise ValueError(f"A quantity must be a whole number, not {value!r}.")
        if self.cached > self.prompt:
            raise ValueError("More tokens were cached than prompted.")


class Line(Struct, frozen=True):
    """One line item of one request's charge."""

    item: str
    quantity: int
    amount_nanousd: int


def cost(price: Price, used: Quantities) -> int:
    """What `used` costs, in nano-USD, rounded up once."""
    return _in_nano(sum([picousd for _, _, picousd in _parts(price, used)]))


def hold_amount(
    price: Price, *, prompt_upper: int, completion_bound: int, choices: int = 1, images: int = 0
) -> int:
    """
    The most that a request can cost, in nano-USD.

    `prompt_upper` is a true upper bound (tokenizer count plus template overhead, else bytes) and
    `completion_bound` is per choice, clamped by the model's own maximum already.
    """
    # A discount for cached tokens is never assumed; a surcharge for them is.
    dearest = Price(
        prompt=max(price.prompt, price.cached),
        completion=price.completion,
        image=price.image,
        request=price.request,
    )
    return cost(
        dearest, Quantities(prompt=prompt_upper, completion=choices * completion_bound, images=images)
    )


def lines_of(price: Price, used: Quantities, charged_nanousd: int) -> list[Line]:
    """
    The charge as line items that sum to it exactly.

    At least one line, so that a charge of zero is seen to be final.
    """
    return _lines(_parts(price, used), charged_nanousd)


def bill(price: Price, used: Quantities, most_nanousd: int) -> tuple[int, list[Line]]:
    """What `used` costs, and the lines of what is charged for it: at most `most_nanousd`."""
    parts = _parts(price, used)
    total = _in_nano(sum([picousd for _, _, picousd in parts]))
    return total, _lines(parts, min(total, most_nanousd))


def split(total: int, weights: list[int]) -> list[int]:
    """`total` in whole parts as near to `weights` as can be: the largest remainders get what is left."""
    weight = sum(weights)
    if not weight:
        return [total, *(0 for _ in weights[1:])]
    shares = [total * each // weight for each in weights]
    left = total - sum(shares)
    if left:
        by_remainder = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % weight), i))
        for i in by_remainder[:left]:
            shares[i] += 1
    return shares


def _lines(parts: list[tuple[str, int, int]], charged_nanousd: int) -> list[Line]:
    parts = [part for part in parts if part[1]] or [(PROMPT, 0, 0)]
    shares = split(charged_nanousd, [picousd for _, _, picousd in parts])
    return [Line(item, count, share) for (item, count, _), share in zip(parts, shares, strict=True)]


def _parts(price: Price, used: Quantities) -> list[tuple[str, int, int]]:
    # A request that costs nothing to make has no line of its own.
    return [
        (PROMPT, used.prompt - used.cached, (used.prompt - used.cached) * price.prompt),
        (CACHED_PROMPT, used.cached, used.cached * price.cached),
        (COMPLETION, used.completion, used.completion * price.completion),
        (IMAGE, used.images, used.images * price.image),
        (REQUEST, 1 if price.request else 0, price.request),
    ]


def _in_nano(picousd: int) -> int:
    return -(-picousd // PICO_IN_A_NANO)


def parse_usd(text: str) -> int:
    """`"12.5"` as nano-USD. Refuses what is not a plain decimal or is finer than a nano-USD."""
    return _parse(text, NANO_DIGITS)


def parse_price(text: str) -> int:
    """USD per token (or image, or request) as pico-USD. Never negative."""
    value = _parse(text, PICO_DIGITS)
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
        number, rest = divmod(number, int(10**-shift))
        if rest:
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
