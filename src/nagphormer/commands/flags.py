"""Types of flags that the parser alone would read too kindly, or not at all."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token

from nagphormer.errors import UserError
from nagphormer.files import parse_seconds


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
    try:
        if token.value[-1:] in "smh":
            return parse_seconds(token.value)
    except UserError:
        pass
    raise ValueError(f"{token.value!r} is no time: write it like 90s, 30m or 2h")


Whole = Annotated[int, Parameter(converter=whole)]
WholeOrNone = Annotated[int | None, Parameter(converter=whole)]
SecondsOrNone = Annotated[float | None, Parameter(converter=seconds)]
