"""Figures as SVG."""

from pathlib import Path
from statistics import mean, stdev

import matplotlib.pyplot as plt

from nagphormer.files import new_file

plt.switch_backend("svg")
plt.rcParams["svg.hashsalt"] = "nagphormer"  # the same figure gives the same file

Series = dict[str, list[tuple[str, list[float]]]]
"""For every data set, a label and the values over seeds for each point."""


def lines(data: Series, path: Path) -> None:
    """A panel for every data set: means joined by a line, deviations as bars."""
    figure, panels = plt.subplots(1, len(data), figsize=(3.2 * len(data), 2.6), squeeze=False, layout="constrained")
    for panel, (name, points) in zip(panels[0], data.items(), strict=True):
        places = [float(label.split("=")[1]) for label, _ in points]
        symbol = points[0][0].split("=")[0].strip()
        panel.errorbar(places, *_summary(points), marker="o", markersize=3, linewidth=1, capsize=2)
        panel.set(title=name, xlabel=symbol, xticks=places)
    panels[0][0].set_ylabel("test accuracy, %")
    _write(figure, path)


def bars(data: Series, path: Path) -> None:
    """A panel for every data set: a bar for each label, deviations on top."""
    figure, panels = plt.subplots(1, len(data), figsize=(2.2 * len(data), 2.6), squeeze=False, layout="constrained")
    for panel, (name, points) in zip(panels[0], data.items(), strict=True):
        means, deviations = _summary(points)
        panel.bar([label for label, _ in points], means, yerr=deviations, color=["C0", "C1", "C2"], capsize=3)
        low = min(m - d for m, d in zip(means, deviations, strict=True))
        high = max(m + d for m, d in zip(means, deviations, strict=True))
        panel.set(title=name, ylim=(low - 0.5 * (high - low), high + 0.2 * (high - low)))
    panels[0][0].set_ylabel("test accuracy, %")
    _write(figure, path)


def loglog(data: Series, path: Path, xlabel: str, ylabel: str) -> None:
    """Lines over positive places on two logarithmic axes."""
    figure, panel = plt.subplots(figsize=(4, 3), layout="constrained")
    for name, points in data.items():
        places, values = [float(label) for label, _ in points], [mean(each) for _, each in points]
        panel.loglog(places, values, marker="o", markersize=3, linewidth=1, label=name)
    panel.set(xlabel=xlabel, ylabel=ylabel)
    panel.legend(fontsize=7)
    _write(figure, path)


def _summary(points: list[tuple[str, list[float]]]) -> tuple[list[float], list[float]]:
    values = [each for _, each in points]
    return [mean(each) for each in values], [stdev(each) if len(each) > 1 else 0.0 for each in values]


def _write(figure: "plt.Figure", path: Path) -> None:
    with new_file(path) as staging:
        figure.savefig(staging, format="svg", metadata={"Date": None})
    plt.close(figure)
