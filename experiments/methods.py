"""Every method that is measured: those of the comparison, and the estimator with the settings its users have.

A method's module is loaded when it is used: most need torch_geometric, which takes seconds that not every cell has to
spend.
"""

import inspect
import warnings
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from experiments.baselines.method import Settings
from experiments.data import graph_name, judged_by
from experiments.measure import (
    Budget,
    Measure,
    baseline,
    measure_best,
    measure_default,
    measure_ours,
    measure_recipe,
    measure_transformer,
)
from nagphormer import TrainConfig, UserError
from nagphormer.settings import RECIPES, read_settings, read_yaml, resolve, settings_to_write


@dataclass(frozen=True)
class Entry:
    """How a method is called, measured and tuned."""

    own_budget: ClassVar[bool] = False
    """Whether epochs and patience are among its settings, and no budget of the harness replaces them."""
    title: str
    module: str
    """In `experiments.baselines`."""
    build: str
    """Its class there."""
    candidates: str = "settings"
    """The function there that gives what is tried on a data set."""

    @property
    def measure(self) -> Measure:
        """How the method is measured."""
        return baseline(getattr(self._loaded, self.build))

    def settings(self, dataset: str) -> list[Settings]:
        """What is tried on a data set: at most four, so that none is tuned much more than another."""
        return getattr(self._loaded, self.candidates)(graph_name(dataset))

    def resolved(self, dataset: str, settings: Settings) -> Settings:
        """Settings with the defaults of those not given."""
        parameters = inspect.signature(getattr(self._loaded, self.build)).parameters.values()
        defaults = {each.name: each.default for each in parameters if each.name != "task"}
        return defaults | settings

    def same(self, recorded: Settings, wanted: Settings) -> bool:
        """Whether recorded settings are the ones wanted."""
        return recorded == wanted

    @property
    def quick(self) -> Settings:
        """What a quick run changes."""
        return getattr(self._loaded, "QUICK", {})

    @property
    def _loaded(self) -> Any:
        return import_module(f"experiments.baselines.{self.module}")


@dataclass(frozen=True)
class Ours:
    """NAGphormer, with the settings of a recipe or its defaults."""

    own_budget: ClassVar[bool] = False
    title: str = "NAGphormer"
    measure: Measure = measure_ours
    recipe: str | None = "paper"
    quick: Settings = field(default_factory=lambda: {"hidden_dim": 128})

    def settings(self, dataset: str) -> list[Settings]:
        """One: the recipe's."""
        return [{}]

    def resolved(self, dataset: str, settings: Settings) -> Settings:
        """The recipe's settings for a data set, with those given, but for what the budget replaces."""
        rest = {name: value for name, value in settings.items() if name != "recipe"}
        whole = settings_to_write(resolve(settings.get("recipe", self.recipe), graph_name(dataset), rest))
        if self.own_budget:
            return whole
        return {name: value for name, value in whole.items() if name not in asdict(Budget())}

    def same(self, recorded: Settings, wanted: Settings) -> bool:
        """Whether settings agree: one that is younger than a recorded cell has the value it was made with."""
        if recorded == wanted:
            return True
        try:
            before, now = (
                read_settings(TrainConfig, asdict(Budget()) | each, "a recorded cell") for each in (recorded, wanted)
            )
        except UserError as error:
            warnings.warn(f"{error}; it counts as not recorded", stacklevel=2)
            return False
        return before == now


@dataclass(frozen=True)
class AsItIs(Ours):
    """NAGphormer as its users have it, by epochs and patience of its own."""

    own_budget: ClassVar[bool] = True
    quick: Settings = field(default_factory=lambda: {"hidden_dim": 128, "epochs": 30, "patience": 30})

    def settings(self, dataset: str) -> list[Settings]:
        """One: none, or what the data set is judged by."""
        metric = judged_by(dataset)
        return [{} if metric == "accuracy" else {"monitor": metric}]


@dataclass(frozen=True)
class Portfolio(AsItIs):
    """A recipe of several members, of which a training takes what suits the graph."""

    quick: Settings = field(default_factory=lambda: {"epochs": 30, "patience": 30})

    def resolved(self, dataset: str, settings: Settings) -> Settings:
        """What the recipe says, with what is given beside it."""
        return self.identity() | settings

    def same(self, recorded: Settings, wanted: Settings) -> bool:
        """Whether recorded settings are the ones wanted."""
        return recorded == wanted

    def identity(self) -> Settings:
        """What tells the recipe from what it was before: its whole file, nothing where there is none."""
        path = RECIPES / f"{self.recipe}.yaml"
        return read_yaml(path) if path.is_file() else {}


COMPARED: dict[str, Entry | Ours] = {
    "mlp": Entry("MLP", "mlp", "MLP"),
    "logistic": Entry("logistic regression on tokens", "logistic", "Logistic"),
    "gcn": Entry("GCN", "gcn", "GCN"),
    "gat": Entry("GAT", "gat", "GAT"),
    "appnp": Entry("APPNP", "appnp", "APPNP"),
    "gprgnn": Entry("GPRGNN", "gprgnn", "GPRGNN"),
    "tuned_gcn": Entry("tuned GCN", "tuned", "TunedGCN", "settings_gcn"),
    "tuned_sage": Entry("tuned SAGE", "tuned", "TunedSAGE", "settings_sage"),
    "sign": Entry("SIGN", "sign", "SIGN"),
    "graphsaint": Entry("GraphSAINT", "graphsaint", "GraphSAINT"),
    "pprgo": Entry("PPRGo", "pprgo", "PPRGo"),
    "grand_plus": Entry("GRAND+", "grand_plus", "GrandPlus"),
    "gt": Entry("GT", "gt", "GT"),
    "graphormer": Entry("Graphormer", "graphormer", "Graphormer"),
    "san": Entry("SAN", "san", "SAN"),
    "graphgps": Entry("GraphGPS", "graphgps", "GraphGPS"),
    "gophormer": Entry("Gophormer", "gophormer", "Gophormer"),
    "sgformer": Entry("SGFormer", "sgformer", "SGFormer"),
    "polynormer": Entry("Polynormer", "polynormer", "Polynormer"),
    "nagphormer": Ours(),
}
"""In the order of the tables."""

ELSEWHERE: dict[str, Settings] = {
    "mlp": {"weight_decay": 5e-5},
    "logistic": {"weight_decay": 5e-5},
    "tuned_gcn": {"hidden_dim": 256, "num_layers": 2, "dropout": 0.7, "weight_decay": 5e-3},
    "tuned_sage": {"hidden_dim": 256, "num_layers": 3, "dropout": 0.5, "weight_decay": 5e-5},
    "sgformer": {
        "hidden_dim": 256,
        "num_graph_layers": 2,
        "graph_weight": 0.5,
        "weight_decay": 5e-5,
        "global_weight_decay": 5e-5,
    },
    "polynormer": {"num_local_layers": 3, "num_global_layers": 1, "dropout": 0.5},
}
"""The one setting of a method on graphs that it was never tuned on.

Of those tried on all of Pubmed, Computers, Photo, CS and Physics (of Polynormer beside what is published for a graph)
it has the best mean validation accuracy on seed 0. The MLP's is the second best, 0.05 points behind: the best learned
for 1,966 epochs on Pubmed, and here are 500.
"""

METHODS = COMPARED | {
    "recipe": Ours('`NodeClassifier(recipe="paper")`', measure_recipe),
    "transformer": Ours('`NodeClassifier(recipe="transformer")`', measure_transformer, recipe="transformer"),
    "default": AsItIs("NAGphormer, default", measure_default, recipe=None),
    "best": Portfolio("NAGphormer, best", measure_best, recipe="best"),
}
