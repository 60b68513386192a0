"""Types of flags that the parser alone would read too kindly."""

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


Whole = Annotated[int, Parameter(converter=whole)]
WholeOrNone = Annotated[int | None, Parameter(converter=whole)]
