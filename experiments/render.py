"""Recorded cells as text: tables and figures, with the paper's numbers beside ours."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from experiments import paper
from experiments.cells import circumstances
from experiments.complexity import STAGES, complexity_section
from experiments.data import NOT_HAD, SYNTHETIC, judged_by, title
from experiments.figures import bars, lines
from experiments.harness import FAILED, OUT_OF_MEMORY, TIME_OUT
from experiments.items import BEYOND, ESTIMATOR, PAGE, Item, Row
from experiments.methods import METHODS
from experiments.statistics import ENOUGH_SEEDS, difference_to_published, paired_difference, spread
from nagphormer.files import new_file

OURS = "nagphormer"
ALL_OURS = (OURS, "default", "best")
LEADING = {
    "table-small": (OURS, "best"),
    "table-gophormer": ("best",),
    "table-fixed": (OURS, "best"),
    "table-others": ("best",),
}
"""Rows that are ranked, and compared with every other, in the tables that compare methods."""
METRIC_TITLES = {"accuracy": "", "roc_auc": ", ROC-AUC"}
REMARKS = Path(__file__).parents[1] / "docs" / "results" / "remarks.md"
"""What a reader should know: under a heading for every table and figure, some points."""
INTRODUCTION = """# Results

NAGphormer and the methods it is compared with: each table and figure of the paper's evaluation. This page is written
by `python -m experiments render` from the cells in `experiments/results/`; every number in a
table, but for the paper's, was measured by the command above it. `--device`, `--seeds`, `--jobs`, `--memory` and
`--time-limit` varied; each cell's line records its own. A setting that a method got later stands in its older cells
with the value that leaves the method as it was.

- **Methods**: all are implemented here, with layers of PyTorch Geometric where it has them; where one departs from its
  paper or published code and we know it, its file in `experiments/baselines/` says how. On a GPU matrices are
  multiplied in TF32, and where all nodes attend all nodes they do so in bfloat16.
- **Splits**: random 60/20/20, seed s = `np.random.RandomState(s).permutation(n)`, the same for all methods. The paper's
  own splits are listed in its authors' repository, but could not be had.
- **Training**: at most 3,000 epochs, patience 100 (epochs without a better validation accuracy or loss), the weights of
  the best validation accuracy. The same for all methods; of Polynormer the epochs after its local phase count.
- **Tuning**: at most four settings a method and data set, chosen by validation accuracy on seed 0 (of its validation
  nodes, some are test nodes of other seeds). The published one is among them where there is one, but for the batch
  sizes of GRAND+ on small graphs and, except on Cora, Citeseer and Flickr, the batch size and learning rate of
  Gophormer. NAGphormer has one: the paper's, but for epochs and patience. The four were revised in the course of the
  work, mostly where a row was below the paper's figure, so that up to eight were recorded for a method on a data set
  (GT on CS), besides trials on validation nodes that were not. Four rows (tuned SAGE on Computers, tuned GCN on CS, GT
  on Photo, GPRGNN on Physics) have a setting that is 0.02 to 0.08 points worse on those validation nodes than one that
  is no longer among the four; on the test nodes of seed 0 it is 0.1 to 0.4 points better.
- **Numbers**: test accuracy in percent, mean ± deviation, and ×, the number of seeds. *paper* is what the paper
  reports, on the small graphs over ten runs. *higher* and *lower*: the 95 % interval of the difference of means (Welch)
  leaves out zero; where the paper gives no deviation its mean is taken as exact. Otherwise *close* within a point, and
  *unclear* beyond.
- **Intervals** are widened for the overlap of random splits (Nadeau and Bengio 2003: 1/n + 1/3 instead of 1/n). They
  are not corrected for their number: of twenty, one leaves out zero by chance.
- **Bold** is the best of a column only where it differs from every other row, the 95 % interval of the paired
  difference on the same splits leaving out zero, and where no row of the column has a †.
- **Outcomes**: *out of memory* and *time-out* are results, under the limits that the line below the table names, also
  for single settings of a method; *fits here* is said where the paper ran out of memory. *no data* marks graphs of the
  paper that could not be had; *–* is not measured, or on too few common splits; † is the best of the settings that
  ended: another is not measured yet, or met the limits of a CPU, where a GPU might have done it."""


def render(folder: Path) -> Path:
    """Write `results.md` and its figures into a folder."""
    beyond = (item for item in BEYOND if _worth_showing(item).rows)
    items = [section(item, folder) for item in (*PAGE, *beyond)]
    parts = [INTRODUCTION, *items, complexity_section(folder)]
    path = folder / "results.md"
    with new_file(path) as staging:
        staging.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def section(item: Item, folder: Path | None = None) -> str:
    """One item as Markdown; on the page, for which a folder is given, with its figure and remarks."""
    parts = [f"## {item.title}", f"`python -m experiments {item.name}`"]
    if item.name == "table-cost":
        parts.append(_cost_table(item))
    elif item.name in (each.name for each in ESTIMATOR):
        parts.append(_estimator_table(item))
    else:
        item = _worth_showing(item) if item.name in LEADING else item
        parts += [_accuracy_table(item), *_notes(item)]
    for row in item.rows:
        if row.method in LEADING.get(item.name, ()):
            parts += [_ranks(item, row), _paired(item, row)]
    extra = {"table-small": _stages, "table-encoding": _gains, "figure-readout": _gains}
    parts += [extra[item.name](item)] if item.name in extra else []
    if folder:
        parts.append(_figure(item, folder) if item.name.startswith("figure") else "")
        parts += [f"- {remark}" for remark in _remarks(item)]
    parts.append(_provenance(item))
    return "\n\n".join(part for part in parts if part)


def _worth_showing(item: Item) -> Item:
    """The item with the rows of which there is something to say: a figure of the paper, or a cell of their own."""
    own = tuple(dataset for dataset in item.datasets if dataset not in item.shared) or item.datasets
    rows = tuple(
        row
        for row in item.rows
        if any(_published(item, row, dataset) for dataset in item.datasets)
        or any(_is_measured(row, dataset) for dataset in own)
    )
    return replace(item, rows=rows)


def _is_measured(row: Row, dataset: str) -> bool:
    """Whether there is a cell, also one that met a limit."""
    found = (cell.read() for cell in row.tuning(dataset))
    return any(facts and facts["outcome"] != FAILED for facts in found)


def _notes(item: Item) -> list[str]:
    """What has to be said of some of the rows, with their names."""
    named: dict[str, list[str]] = {}
    for row in item.rows:
        if row.note:
            named.setdefault(row.note, []).append(row.title)
    return [f"*{'*, *'.join(titles)}*: {note}" for note, titles in named.items()]


def _remarks(item: Item) -> list[str]:
    """The points under an item's heading, each in one line."""
    _, _, below = REMARKS.read_text(encoding="utf-8").partition(f"\n## {item.name}\n")
    return [" ".join(point.split()) for point in below.partition("\n## ")[0].split("\n- ")[1:]]


def _accuracy_table(item: Item) -> str:
    rows = [[row.title, *(_accuracy(item, row, dataset) for dataset in item.datasets)] for row in item.rows]
    return _table(["method", *map(_heading, item.datasets)], rows)


def _heading(dataset: str) -> str:
    """A data set, and what is shown of it where that is not accuracy."""
    return title(dataset) + METRIC_TITLES[judged_by(dataset)]


def _estimator_table(item: Item) -> str:
    """A line a data set: accuracies, the first minus the better of the others, and what a run of the first takes."""
    first, *others = item.rows
    lines = []
    for dataset in item.datasets:
        line = [title(dataset), *(_accuracy(item, row, dataset) for row in item.rows)]
        line += [_lead(first, others, dataset)] if others else []
        facts = list(first.recorded(dataset).values())
        told = (
            (
                f"{spread([100 * each['val_accuracy'] for each in facts])}",
                f"{mean(each['epochs'] for each in facts):.0f}",
                f"{mean(each['seconds'] for each in facts):.1f}",
                f"{_peak(facts):.2f} GB",
            )
            if facts
            else ("–",) * 4
        )
        lines.append([*line, *told])
    difference = ["difference to the better" if len(others) > 1 else "difference"] if others else []
    took = ["validation", "epochs", "seconds per run", "peak memory"]
    return _table(["data set", *(row.title for row in item.rows), *difference, *took], lines)


def _lead(first: Row, others: list[Row], dataset: str) -> str:
    """A row minus the best of some others, with its interval where there are enough seeds."""
    ours, *theirs = (_scores(row, dataset) for row in (first, *others))
    if not ours or not all(theirs):
        return "–"
    best = max(theirs, key=lambda scores: mean(scores.values()))
    return str(paired_difference(ours, best) or f"{mean(ours.values()) - mean(best.values()):+.2f}")


def _accuracy(item: Item, row: Row, dataset: str) -> str:
    """Ours, whether it is best, and the paper's."""
    scores = _scores(row, dataset)
    published = _published(item, row, dataset)
    if not scores:
        text = _outcome(row, dataset)
        return text + (f" (paper {_number(published)})" if published else "")
    seeds = Counter(facts["outcome"] for facts in row.stopped(dataset) if facts["seed"] > 0)
    text = ", ".join([spread(list(scores.values())), *(f"{outcome} ×{count}" for outcome, count in seeds.items())])
    text += "" if row.is_tuned(dataset) else " †"
    if _is_best(item, row, dataset):
        text = f"**{text}**"
    if published is None:
        return text
    word = _word(list(scores.values()), published)
    return f"{text} (paper {_number(published)}{word})"


def _scores(row: Row, dataset: str) -> dict[int, float]:
    """What is shown of a row, in percent, by seed."""
    return {seed: 100 * row.shown(facts) for seed, facts in row.recorded(dataset).items()}


def _outcome(row: Row, dataset: str) -> str:
    """Why there is no accuracy."""
    found = [facts["outcome"] for cell in row.tuning(dataset) if (facts := cell.read())]
    for outcome in (OUT_OF_MEMORY, TIME_OUT):
        if outcome in found:
            return outcome
    return "failed" if found else "no data" if dataset in NOT_HAD else "–"


def _published(item: Item, row: Row, dataset: str) -> tuple[float, float] | float | str | None:
    if item.name == "table-encoding":
        full = paper.LARGE[OURS] | paper.SMALL[OURS]
        return paper.WITHOUT_ENCODING.get(dataset) if row.title.startswith("without") else full.get(dataset)
    if item.name == "figure-readout":
        return (paper.LARGE[OURS] | paper.SMALL[OURS]).get(dataset) if row.title == "ATT." else None
    tables: dict[str, dict[str, Any]] = {
        "table-small": paper.SMALL,
        "table-large": paper.LARGE,
        "table-gophormer": paper.GOPHORMER,
        "accuracy": {"recipe": paper.GOPHORMER[OURS] | paper.SMALL[OURS]},
    }
    return tables.get(item.name, {}).get(row.method, {}).get(dataset)


def _number(published: tuple[float, float] | float | str) -> str:
    if isinstance(published, str):
        return published
    return f"{published[0] if isinstance(published, tuple) else published:.2f}"


def _word(values: list[float], published: tuple[float, float] | float | str) -> str:
    """Whether ours differs from the paper's, in a word; a mean without deviation is taken as exact."""
    if isinstance(published, str):
        return ", fits here"
    difference = difference_to_published(values, published if isinstance(published, tuple) else (published, 0.0))
    if difference is None:
        return ""
    if difference.is_one:
        return ", higher" if difference.mean > 0 else ", lower"
    return ", close" if abs(difference.mean) <= 1 else ", unclear"


def _is_best(item: Item, row: Row, dataset: str) -> bool:
    """Whether a row is better than every other on the splits both have, by differences that are some."""
    rivals = [other for other in item.rows if other is not row and _scores(other, dataset)]
    ours = _scores(row, dataset)
    differences = [paired_difference(ours, _scores(other, dataset)) for other in rivals]
    sure = all(difference is not None and difference.low > 0 for difference in differences)
    return bool(rivals) and sure and all(other.is_tuned(dataset) for other in (row, *rivals))


def _ranks(item: Item, ours: Row) -> str:
    """Where a row of ours stands among the methods of others."""
    ranked = [row for row in item.rows if row is ours or row.method not in ALL_OURS]
    told = []
    for dataset in item.datasets:
        means = {row: mean(found) for row in ranked if (found := _first_seeds(row, dataset))}
        others = [row for row in ranked if row not in means and any(cell.read() for cell in row.tuning(dataset))]
        if ours in means and len(means) > 1:
            ahead = [row for row in means if means[row] > means[ours]]
            text = f"{title(dataset)}: {len(ahead) + 1} of {len(means)}"
            text += "" if all(row.is_tuned(dataset) for row in (*means, *others)) else " †"
            text += f"; first: {max(ahead, key=means.__getitem__).title}" if ahead else ""
            told.append(text + (f"; not ranked: {', '.join(row.title for row in others)}" if others else ""))
    whose = "NAGphormer's rank" if ours.method == OURS else f"The rank of {ours.title}"
    heading = (
        f"**{whose}** is by the mean over seeds 0 to {ENOUGH_SEEDS - 1}, which every ranked method has; the "
        "means above are over all seeds of a method, so that their order may differ. Which differences are more than "
        "chance, the intervals below tell."
    )
    return "\n".join([f"{heading}\n", *(f"- {text}" for text in told)]) if told else ""


def _first_seeds(row: Row, dataset: str) -> list[float]:
    """What is shown of the seeds that are ranked; none where one of them is missing."""
    scores = _scores(row, dataset)
    return [scores[seed] for seed in range(ENOUGH_SEEDS)] if set(range(ENOUGH_SEEDS)) <= scores.keys() else []


def _paired(item: Item, ours: Row) -> str:
    """A row of ours minus every other, on the same splits."""
    rows = []
    for row in item.rows:
        if row is not ours:
            pairs = (paired_difference(_scores(ours, name), _scores(row, name)) for name in item.datasets)
            rows.append([row.title, *(str(pair) if pair else "–" for pair in pairs)])
    heading = f"{ours.title} minus each method on the same splits, mean and 95 % interval:"
    return heading + "\n\n" + _table(["method", *map(_heading, item.datasets)], rows)


def _stages(item: Item) -> str:
    """Seconds and memory of every method."""
    rows = []
    for row in item.rows:
        texts = []
        for dataset in item.datasets:
            facts = list(row.recorded(dataset).values())
            if not facts:
                texts.append("–")
                continue
            place = "" if any(each["gpu"] for each in facts) else ", CPU"
            facts = [each for each in facts if each["gpu"] or place]
            seconds = (mean(each["stages"][stage] for each in facts) for stage in STAGES)
            texts.append(" + ".join(map(_seconds, seconds)) + f" s, {_peak(facts):.2g} GB{place}")
        rows.append([row.title, *texts])
    heading = (
        "Seconds for preparation + training (validation included) + inference on all nodes, means over the seeds, and "
        "the largest peak of memory. Several cells shared the machine at a time, so compare orders of magnitude:"
    )
    return heading + "\n\n" + _table(["method", *map(title, item.datasets)], rows)


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _peak(facts: list[dict[str, Any]]) -> float:
    return max(each["peak_gb"] for each in facts)


def _gains(item: Item) -> str:
    """Paired differences of the published way to the others."""
    main = item.rows[-1] if item.name == "table-encoding" else item.rows[0]
    rows = []
    for row in item.rows:
        if row is not main:
            pairs = (paired_difference(_scores(main, name), _scores(row, name)) for name in item.datasets)
            rows.append([f"{main.title} minus {row.title}", *(str(pair) if pair else "–" for pair in pairs)])
    if item.name == "table-encoding":
        full = paper.LARGE[OURS] | paper.SMALL[OURS]
        gains = (
            f"{full[name][0] - paper.WITHOUT_ENCODING[name]:+.2f}" if name in full else "–"  # type: ignore[operator]
            for name in item.datasets
        )
        rows.append(["the paper's gain", *gains])
    return "On the same splits, mean and 95 % interval:\n\n" + _table(["", *map(title, item.datasets)], rows)


def _cost_table(item: Item) -> str:
    rows = [[row.title, *(_cost(row, dataset) for dataset in item.datasets)] for row in item.rows]
    return _table(["method", *map(title, item.datasets)], rows)


def _cost(row: Row, dataset: str) -> str:
    """Memory and seconds of a method, and the paper's."""
    facts = list(row.recorded(dataset).values())
    published = paper.COST[row.method].get(dataset.removeprefix(SYNTHETIC))
    theirs = f"paper {published[0]:,} MB, {published[1]} s" if published else ""
    if not facts:
        return _outcome(row, dataset) + (f" ({theirs})" if theirs else "")
    memory, epochs = 1000 * _peak(facts), mean(each["epochs"] for each in facts)
    ready, train, infer = (mean(each["stages"][stage] for each in facts) for stage in STAGES)
    ours = (
        f"{memory:,.0f} MB, {train:.1f} s for {epochs:.0f} epochs + {infer:.1f} s inference, prepared in {ready:.1f} s"
    )
    if not published:
        return ours
    return f"{ours} ({theirs}: {_than(memory, published[0])} memory, {_than(train + infer, published[1])} time)"


def _than(ours: float, theirs: float) -> str:
    """More or less than the paper's, in a word."""
    return "about as much" if abs(ours / theirs - 1) < 0.1 else "more" if ours > theirs else "less"


def _figure(item: Item, folder: Path) -> str:
    """Draw a figure and give the Markdown that shows it."""
    data = {
        title(dataset): [(row.title, list(_scores(row, dataset).values())) for row in item.rows]
        for dataset in item.datasets
        if all(_scores(row, dataset) for row in item.rows)
    }
    if not data:
        return ""
    path = folder / "results" / f"{item.name}.svg"
    (bars if item.name == "figure-readout" else lines)(data, path)
    return f"![{item.title}](results/{path.name})"


def _provenance(item: Item) -> str:
    """Machines, versions, dates and limits of the cells shown."""
    facts = [each for row in item.rows for dataset in item.datasets for each in row.recorded(dataset).values()]
    stopped = [each for row in item.rows for dataset in item.datasets for each in row.stopped(dataset)]
    if not facts + stopped:
        return ""
    return "; ".join([circumstances(facts + stopped), *_limits(stopped)]) + "."


def _limits(stopped: list[dict[str, Any]]) -> list[str]:
    """Which limits were met, where and by whom."""
    met: dict[str, dict[str, dict[str, None]]] = {}  # by limit and method the data sets, in order, each once
    for facts in stopped:
        out_of_memory = facts["outcome"] == OUT_OF_MEMORY
        limit = f"{facts['limits']['memory']:g} GB" if out_of_memory else f"{facts['limits']['seconds']:g} s"
        methods = met.setdefault(f"{facts['outcome']}: more than {limit} on {facts['device']}", {})
        methods.setdefault(METHODS[facts["method"]].title, {})[title(facts["dataset"])] = None
    told = []
    for limit, methods in met.items():
        those = "; ".join(f"{method} on {', '.join(datasets)}" for method, datasets in methods.items())
        told.append(f"{limit} ({those})")
    return told


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))
