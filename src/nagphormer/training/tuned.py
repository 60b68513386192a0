"""What a tuning leaves for people: the winner as a recipe, a table of the trials and a picture of them."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import yaml

from nagphormer import __version__
from nagphormer.errors import MissingExtra
from nagphormer.files import new_file
from nagphormer.settings import TrainConfig
from nagphormer.training.study import Ended, Study

RECIPE, TABLE, PICTURE = "best.yaml", "trials.csv", "trials.svg"


def write_tuned(folder: Path, study: Study, metric: str, graph: str) -> None:
    """Write all files anew, each whole.

    Args:
        folder: where.
        study: the trials.
        metric: the name of what judges them.
        graph: the graph's name.
    """
    _draw(folder / PICTURE, study, metric)
    _write_table(folder / TABLE, study, metric)
    if study.best is not None:
        _write_recipe(folder / RECIPE, study, study.best, metric, graph)


def recipe(study: Study, best: Ended) -> dict[str, object]:
    """The settings of a trial that were tried, or that are not the defaults."""
    settings = asdict(study.about.base) | best.tried
    default = {each.name: each.default for each in fields(TrainConfig)}
    return {name: value for name, value in settings.items() if name in best.tried or value != default[name]}


def _write_recipe(path: Path, study: Study, best: Ended, metric: str, graph: str) -> None:
    content = {"version": __version__, **recipe(study, best)}
    content["expected"] = {f"val_{metric}": round(best.value or 0, 4)}
    about = f"# nagphormer tune: the best of {len(study.ended)} trials on {graph}, trial {best.number}\n"
    with new_file(path) as staging:
        staging.write_text(about + yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def _write_table(path: Path, study: Study, metric: str) -> None:
    """A line for every trial."""
    tried = list(study.about.space.choices)
    facts = ("loss", "best_epoch", "epochs", "seconds")
    with new_file(path) as staging, open(staging, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["trial", "state", metric, *facts, *tried, "reason"])
        for each in study.ended:
            known = asdict(each)
            row = [each.number, each.state, each.value, *(known[name] for name in facts)]
            table.writerow([*row, *(each.tried[name] for name in tried), each.reason])


def _draw(path: Path, study: Study, metric: str) -> None:
    """The value of every trial, and the best so far as a line."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise MissingExtra("matplotlib", "tune", "drawing trials") from error
    complete = _points(study.ended, "complete")
    values, better = dict(complete), min if study.minimize else max
    so_far = [(each.number, better(found)) for each in study.ended if (found := _until(each.number, values))]
    with matplotlib.rc_context({"svg.hashsalt": "nagphormer"}):  # the same trials give the same file
        figure = Figure(figsize=(6, 3.5), layout="constrained")
        panel = figure.subplots()
        panel.step(*_apart(so_far), where="post", color="C0", label="best so far")
        panel.plot(*_apart(complete), "o", color="C0", markersize=4, label="complete")
        panel.plot(*_apart(_points(study.ended, "pruned")), "x", color="C1", markersize=4, label="pruned")
        panel.set(xlabel="trial", ylabel=f"validation {metric}")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.legend(fontsize=8)
        with new_file(path) as staging:
            figure.savefig(staging, format="svg", metadata={"Date": None})


def _points(ended: Sequence[Ended], state: str) -> list[tuple[int, float]]:
    return [(each.number, each.value) for each in ended if each.state == state and each.value is not None]


def _until(last: int, values: dict[int, float]) -> list[float]:
    """The values of trials up to one of them."""
    return [value for number, value in values.items() if number <= last]


def _apart(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [number for number, _ in points], [value for _, value in points]
