"""Types of flags that the parser alone would read too kindly."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token


def whole(kind: Any, tokens: Sequence[Token]) -> int:
    """A whole number; the parser would round 1.5 epochs to 2."""
    (token,) = tokens
    try:
        number = float(token.value) if "." in token.value else int(token.value)
    except ValueError:
        number = 0.5
    if number != int(number):
        raise ValueError(f"{token.value!r} is no whole number")
    return int(number)


Whole = Annotated[int, Parameter(converter=whole)]
WholeOrNone = Annotated[int | None, Parameter(converter=whole)]
