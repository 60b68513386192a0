"""The one exception that means: your input, not our code."""

import sys
from difflib import get_close_matches
from math import isfinite
from numbers import Integral, Real
from typing import Any

OTHER_NAMES = {
    "alpha": "weight_decay",
    "attn_dropout": "attention_dropout",
    "class_weight": "class_weights",
    "d_model": "hidden_dim",
    "dropout_rate": "dropout",
    "grad_clip": "clip_norm",
    "gradient_clip_val": "clip_norm",
    "heads": "num_heads",
    "hidden_channels": "hidden_dim",
    "hidden_layer_sizes": "hidden_dim",
    "hidden_size": "hidden_dim",
    "k": "hops",
    "l2": "weight_decay",
    "learning_rate": "lr",
    "learning_rate_init": "lr",
    "max_epochs": "epochs",
    "max_iter": "epochs",
    "max_norm": "clip_norm",
    "n_epochs": "epochs",
    "n_heads": "num_heads",
    "n_hops": "hops",
    "n_iter": "epochs",
    "n_iter_no_change": "patience",
    "n_jobs": "threads",
    "n_layers": "num_layers",
    "nhead": "num_heads",
    "num_epochs": "epochs",
    "num_hops": "hops",
    "output": "out",
    "p": "dropout",
    "random_seed": "seed",
    "random_state": "seed",
    "verbosity": "verbose",
    "warmup_steps": "warmup_updates",
}
"""What scikit-learn, PyTorch and others call our settings."""


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


class UnknownParameter(UserError, TypeError):
    """An argument by a name that there is not."""


class NotFitted(UserError, AttributeError):
    """A classifier that is asked before it is fitted; `not_fitted` makes it."""

    def __reduce__(self) -> Any:
        return not_fitted, self.args  # the class may be one that is made as it is raised


def not_fitted(text: str) -> NotFitted:
    """The error; where scikit-learn is in use, it is also scikit-learn's own `NotFittedError`."""
    theirs = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", None)
    return NotFitted(text) if theirs is None else type("NotFittedError", (NotFitted, theirs), {})(text)


class MissingExtra(UserError, ImportError):
    """A feature whose optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package {package}: pip install 'nagphormer[{extra}]'")


def check_whole(name: str, value: Any) -> None:
    """Refuse what is no whole number."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise UserError(f"{name} must be a whole number, not {value!r}")


def check_finite(name: str, value: Any) -> None:
    """Refuse what is no number."""
    if not isinstance(value, Real) or isinstance(value, bool) or not isfinite(value):
        raise UserError(f"{name} must be a finite number, not {value!r}")


def nearest(word: Any, known: list[str]) -> str:
    """A hint such as ` Did you mean 'pubmed'?`, or nothing when no known word is close or means the same."""
    if not isinstance(word, str):
        return ""
    spelled = {_plain(name): name for name in known}
    other = OTHER_NAMES.get(_plain(word))
    close = [other] if other in spelled else get_close_matches(_plain(word), list(spelled), n=1)
    return f" Did you mean {spelled[close[0]]!r}?" if close else ""


def _plain(name: str) -> str:
    """A name or a flag as one would write it in Python."""
    return name.partition("=")[0].lstrip("-").replace("-", "_").lower()
