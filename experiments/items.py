"""The tables and figures: which rows, on which data sets. Those of the paper's evaluation make a page."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.baselines.method import Settings
from experiments.data import AT_HAND, GOPHORMER, LARGE, MOST_SEEDS, ON_FIXED, OTHERS, QUICK, SMALL, SYNTHETIC
from experiments.harness import DONE, FAILED, OUT_OF_MEMORY, TIME_OUT, Cell, Grid, judged
from experiments.measure import Budget
from experiments.methods import COMPARED, ELSEWHERE, METHODS

SPLITS = ("val", "test")


def _the_tables(dataset: str) -> None:
    """No budget but the table's."""


@dataclass(frozen=True)
class Row:
    """A method with the settings it may choose from."""

    title: str
    method: str
    candidates: Callable[[str], list[Settings]]
    """What is tried on a data set, in order of preference."""
    seeds: int = 10
    """Shown at most."""
    score: str = "test"
    """What is shown: what cells are judged by on `test` or `val` nodes, else a fact of cells that another row has."""
    budget: Callable[[str], Budget | None] = _the_tables
    """How long it may train on a data set, where that is not what the table says."""
    note: str = ""
    """What has to be said below a table of which it is a row."""

    def tuning(self, dataset: str) -> list[Cell]:
        """The cells among which the settings are chosen: all candidates, on the split of seed 0."""
        return [self._cell(dataset, 0, settings) for settings in self.candidates(dataset)]

    def _cell(self, dataset: str, seed: int, settings: Settings) -> Cell:
        return Cell(dataset, self.method, seed, settings, self.budget(dataset))

    def chosen(self, dataset: str) -> Settings | None:
        """The candidate that is best on the validation nodes of seed 0, if any was measured and ended well."""
        done = [(cell, facts) for cell in self.tuning(dataset) if (facts := cell.read()) and facts["outcome"] == DONE]
        if not done:
            return None
        best = max(done, key=lambda pair: (judged(pair[1], "val"), -pair[1].get("val_loss", 0)))
        return best[0].settings

    def shown(self, facts: dict[str, Any]) -> float:
        """The number of a cell that stands in the table."""
        return judged(facts, self.score) if self.score in SPLITS else facts[self.score]

    def is_tuned(self, dataset: str) -> bool:
        """Whether every candidate was tried, and none met the limits of a CPU alone: a GPU might not."""
        on_cpu = any(not facts["gpu"] for facts in self.stopped(dataset) if facts["seed"] == 0)
        found = [cell.read() for cell in self.tuning(dataset)]
        return not on_cpu and all(facts and facts["outcome"] != FAILED for facts in found)

    def cells(self, dataset: str, seeds: int) -> list[Cell]:
        """The chosen settings on every seed; none while there is nothing to choose from."""
        settings = self.chosen(dataset)
        seeds = min(seeds, MOST_SEEDS.get(dataset, seeds))
        return [] if settings is None else [self._cell(dataset, seed, settings) for seed in range(seeds)]

    def recorded(self, dataset: str) -> dict[int, dict[str, Any]]:
        """Facts of the chosen settings by seed, as far as measured."""
        found = ((cell.seed, cell.read()) for cell in self.cells(dataset, self.seeds))
        return {seed: facts for seed, facts in found if facts and facts["outcome"] == DONE}

    def stopped(self, dataset: str) -> list[dict[str, Any]]:
        """Facts of the candidates, and of other seeds of the chosen one, that met a limit."""
        found = (cell.read() for cell in [*self.tuning(dataset), *self.cells(dataset, self.seeds)[1:]])
        return [facts for facts in found if facts and facts["outcome"] in (OUT_OF_MEMORY, TIME_OUT)]


@dataclass(frozen=True)
class Item:
    """One table or figure."""

    name: str
    title: str
    rows: tuple[Row, ...]
    datasets: tuple[str, ...]
    budget: Budget = field(default_factory=Budget)
    seeds: int = 5
    """Measured, where no other number is asked for."""
    shared: tuple[str, ...] = ()
    """Data sets that a table before it has, too: what is measured for that one is no row of this one yet."""

    def fill(self, grid: Grid, seeds: int) -> None:
        """Measure what is missing: the choice of settings first, then the other seeds."""
        rows = [row for row in self.rows if row.score in SPLITS]
        pairs = [(row, dataset) for dataset in self.datasets for row in rows]
        later = sum(
            seeds - 1 if grid.missing(row.tuning(dataset)) else len(grid.missing(row.cells(dataset, seeds)))
            for row, dataset in pairs
        )
        progress = grid.fill((cell for row, dataset in pairs for cell in row.tuning(dataset)), later)
        grid.fill((cell for row, dataset in pairs for cell in row.cells(dataset, seeds)), progress=progress)

    def quick(self) -> "Item":
        """The same on two small graphs, with one setting a row."""
        rows = (replace(row, candidates=_first(row), budget=_the_tables) for row in self.rows)
        return replace(self, rows=tuple(rows), datasets=QUICK)


def _first(row: Row) -> Callable[[str], list[Settings]]:
    return lambda dataset: [row.candidates(dataset)[0] | METHODS[row.method].quick]


def _row(method: str) -> Row:
    """A method as the harness tunes it."""
    return Row(METHODS[method].title, method, METHODS[method].settings)


def _as_it_is(method: str) -> Row:
    """NAGphormer by epochs and patience of its own."""
    return replace(_row(method), note=BY_THEMSELVES)


def _rival(method: str) -> Row:
    """A method of the comparison, with one setting and fewer epochs on graphs that it was never tuned on."""

    def candidates(dataset: str) -> list[Settings]:
        return METHODS[method].settings(dataset) if dataset in SMALL else [ELSEWHERE[method]]

    def budget(dataset: str) -> Budget | None:
        return None if dataset in SMALL else FEWER

    return Row(METHODS[method].title, method, candidates, budget=budget, note=FIXED_BEFOREHAND)


def _ours(title: str, method: str = "nagphormer", **settings: Any) -> Row:
    """NAGphormer with some of the recipe's settings replaced; one that the recipe has anyway is the recipe's cell."""

    def candidates(dataset: str) -> list[Settings]:
        recipe = METHODS[method].resolved(dataset, {})
        return [{name: value for name, value in settings.items() if recipe[name] != value}]

    return Row(title, method, candidates)


def _published(method: str) -> Row:
    """A method with its published settings for the graph whose size a synthetic one has."""

    def candidates(dataset: str) -> list[Settings]:
        base = dataset.removeprefix(SYNTHETIC)
        if method == "nagphormer":
            return [{"recipe": f"paper-{base}"}]
        return METHODS[method].settings(base)[:1]

    return Row(METHODS[method].title, method, candidates)


SCALABLE = ("pprgo", "graphsaint", "grand_plus", "nagphormer")
STUDIED = ("pubmed", "computers", "photo")
"""Parameters are studied on these: the three graphs of the paper's figures cannot be had."""

FEWER = Budget(epochs=500)
"""Of rivals on graphs that they were never tuned on."""
FIXED_BEFOREHAND = (
    "one setting each, fixed beforehand, on graphs that they were never tuned on: of those tried on Pubmed, Computers, "
    "Photo, CS and Physics the one with the best mean validation accuracy (of the MLP the second best, 0.05 points "
    f"behind, since the best takes too long). There they train for at most {FEWER.epochs} epochs."
)
BY_THEMSELVES = (
    f"`NodeClassifier` as it is, by the epochs and patience of its own settings instead of {Budget().epochs:,} and "
    f"{Budget().patience}."
)

OWN = Budget(epochs=2000, patience=50)
"""What the defaults say themselves."""
RECIPE = replace(OWN, restart_on_ties=True)
"""What the recipe says itself."""

RIVALS = tuple(ELSEWHERE)
AS_THEY_ARE = (_as_it_is("default"), _as_it_is("best"))
"""The last rows of the tables that compare methods."""

PAGE = (
    Item("table-small", "Small graphs", (*map(_row, COMPARED), *AS_THEY_ARE), SMALL),
    Item("table-large", "Large graphs", tuple(_row(method) for method in SCALABLE), LARGE),
    Item(
        "table-encoding",
        "Structural encoding",
        (_ours("without encoding", encoding_dim=0), _ours("with encoding")),
        (*SMALL, *LARGE),
    ),
    Item(
        "figure-readout",
        "Readout",
        (_ours("ATT."), _ours("SIN.", readout="self"), _ours("SUM.", readout="sum")),
        (*SMALL, *LARGE),
    ),
    Item(
        "figure-hops",
        "Number of hops",
        tuple(_ours(f"K = {hops}", hops=hops, num_layers=1) for hops in range(4, 21, 2)),
        (*STUDIED, *LARGE),
    ),
    Item(
        "figure-layers",
        "Number of layers",
        tuple(_ours(f"L = {layers}", num_layers=layers) for layers in range(1, 6)),
        (*STUDIED, *LARGE),
    ),
    Item(
        "table-cost",
        "Cost on large graphs",
        tuple(_published(method) for method in SCALABLE),
        tuple(SYNTHETIC + dataset for dataset in LARGE),
    ),
    Item(
        "table-gophormer",
        "Gophormer's graphs",
        (*map(_rival, RIVALS[:4]), _row("gophormer"), _row("nagphormer"), *AS_THEY_ARE),
        GOPHORMER,
        seeds=3,
        shared=("pubmed",),
    ),
)
"""The paper's, as `docs/results.md` shows them."""

BEYOND = (
    Item("table-fixed", "The fixed split", (*map(_row, COMPARED), *AS_THEY_ARE), ON_FIXED),
    Item("table-others", "Other graphs", (*map(_rival, RIVALS), *AS_THEY_ARE), OTHERS, seeds=3),
)
"""Those that the paper has not, shown after its own once they have cells."""

ESTIMATOR = (
    Item("accuracy", "The paper's recipe", (_row("recipe"),), AT_HAND, RECIPE),
    Item(
        "defaults",
        "Nothing set",
        (
            replace(_row("default"), title="`NodeClassifier()`"),
            _row("transformer"),
            replace(_row("transformer"), title="MLP", score="mlp"),
            replace(_row("transformer"), title="logistic regression", score="logistic_regression"),
        ),
        AT_HAND + OTHERS,
        OWN,
    ),
    Item(
        "encoding",
        "Eigenvectors by default?",
        (
            replace(_ours("with three", "transformer", encoding_dim=3), score="val"),
            replace(_row("transformer"), score="val"),
        ),
        AT_HAND + OTHERS,
        OWN,
    ),
)
"""`NodeClassifier` as its users have it."""

ITEMS = {item.name: item for item in PAGE + BEYOND + ESTIMATOR}


def in_precision(item: Item, precision: str) -> Item:
    """The same in another precision, beside the rows there are."""
    rows = (_ours(f"{row.title} in {precision}", row.method, precision=precision) for row in item.rows)
    return replace(item, rows=(*rows, *item.rows))
