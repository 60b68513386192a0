"""The one exception that means: your input, not our code."""

from difflib import get_close_matches


class UserError(ValueError):
    """A mistake the user can mend; the message names the value and the fix. The command line exits with 2."""


class Refusal(UserError):
    """Tables that cannot be read as asked, and, where one is known, what to ask for instead."""

    def __init__(self, message: str, instead: dict[str, list[str]] | None = None):
        super().__init__(message)
        self.instead = instead or {}
        """Values to add to arguments of `read_tables`, by their name."""


class Taken(UserError):
    """A folder that another process filled while this one was at work on it."""


class MissingExtra(UserError, ImportError):
    """A feature whose optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package {package}: pip install 'nagphormer[{extra}]'")


def nearest(word: str, known: list[str]) -> str:
    """A hint such as ` Did you mean 'pubmed'?`, or nothing when no known word is close."""
    spelled = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), list(spelled), n=1)
    return f" Did you mean {spelled[close[0]]!r}?" if close else ""
