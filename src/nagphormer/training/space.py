"""Which settings a tuning tries: the paper's grid, and ours. A line of a table adds a setting."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from nagphormer.errors import UserError

SpaceName = Literal["paper", "wide"]


@dataclass(frozen=True)
class OneOf:
    """Some values."""

    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return value in self.values

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


@dataclass(frozen=True)
class Between:
    """All numbers from low to high, both included; whole ones where both are."""

    low: float
    high: float
    log: bool = False
    """Whether each order of magnitude is as likely as any other."""

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Whether a value lies there."""
        return value is not None and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


PAPER: dict[str, OneOf | Between] = {
    "num_layers": Between(1, 5),
    "hidden_dim": OneOf((128, 256, 512)),
    "hops": Between(2, 20),
    "lr": OneOf((1e-3, 5e-3, 1e-4)),
    "weight_decay": OneOf((1e-4, 5e-4, 1e-5)),
    "dropout": OneOf((0.1, 0.3, 0.5)),
}
"""The grid of the paper's appendix "Implementation details": "we try the number of Transformer layers in {1,2,...,5},
the hidden dimension in {128, 256, 512}, and the propagation steps in {2,3,...,20}. Parameters are optimized with the
AdamW optimizer, using a learning rate of in {1e-3,5e-3,1e-4} and weight decay of {1e-4,5e-4,1e-5}. We also search the
dropout rate in {0.1,0.3,0.5}. The batch size is set to 2000. The training process is early stopped within 50 epochs."

The one dropout rate is our `dropout`; that of attention weights stays as in the authors' code. What the grid does not
name follows the recipe `paper`, batches of 2,000 and a patience of 50 among it."""

WIDE: dict[str, OneOf | Between] = {
    "hops": OneOf((1, 2, 3, 5, 8, 12)),  # few values: each has a token store of its own
    "encoding_dim": OneOf((0, 3, 10)),
    "feature_scaling": OneOf(("none", "standardize", "length")),
    "label_hops": OneOf((0, 1, 2)),
    "network": OneOf(("mlp", "transformer")),
    "hidden_dim": OneOf((64, 128, 256, 512)),
    "num_layers": Between(1, 3),
    "dropout": Between(0.0, 0.8),
    "token_dropout": Between(0.0, 0.8),
    "attention_dropout": Between(0.0, 0.5),
    "feature_dropout": Between(0.0, 0.9),
    "readout": OneOf(("attention", "self", "sum", "dynamic")),
    "own_maps": OneOf((True, False)),
    "label_smoothing": Between(0.0, 0.2),
    "linear": OneOf((True, False)),
    "lr": Between(1e-4, 1e-2, log=True),
    "weight_decay": Between(1e-5, 1e-1, log=True),
    "averaging": OneOf((0.0, 0.5, 0.85, 0.95)),
}
"""Around our defaults: the settings that matter most. Widths are multiples of the eight heads."""


@dataclass(frozen=True)
class Space:
    """Settings to try; all others are the same in every trial."""

    name: SpaceName
    recipe: str | None
    """What the others follow, beside the defaults."""
    choices: dict[str, OneOf | Between]

    def without(self, names: Iterable[str]) -> "Space":
        """The space where some settings are given; refuses to leave nothing to try."""
        left = {name: choice for name, choice in self.choices.items() if name not in set(names)}
        if not left:
            raise UserError(
                f"all settings of the space {self.name!r} are given: leave out one of {', '.join(self.choices)}"
            )
        return Space(self.name, self.recipe, left)

    def among(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Those of some settings that can be tried here."""
        return {name: settings[name] for name, choice in self.choices.items() if choice.holds(settings[name])}

    def written(self) -> dict[str, Any]:
        """The choices as JSON holds them."""
        return {
            name: list(choice.values) if isinstance(choice, OneOf) else asdict(choice)
            for name, choice in self.choices.items()
        }


SPACES: dict[SpaceName, Space] = {"paper": Space("paper", "paper", PAPER), "wide": Space("wide", None, WIDE)}
