"""Types of flags that the parser alone would read too kindly, or not at all."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token


def whole(kind: Any, tokens: Sequence[Token]) -> int:
    """A whole number; the parser would round 1.5 epochs to 2."""
    (token,) = tokens
    try:
        number = float(token.value) if "." in token.value else int(token.value)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):  # no number, or an infinite one
        pass
    raise ValueError(f"{token.value!r} is no whole number")


def seconds(kind: Any, tokens: Sequence[Token]) -> float:
    """Seconds in a time such as 90s, 30m or 2h; a number alone would not say which of them it means."""
    (token,) = tokens
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", token.value)
    if match is None or not float(match[1]):
        raise ValueError(f"{token.value!r} is no time: write it like 90s, 30m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


Whole = Annotated[int, Parameter(converter=whole)]
WholeOrNone = Annotated[int | None, Parameter(converter=whole)]
SecondsOrNone = Annotated[float | None, Parameter(converter=seconds)]
