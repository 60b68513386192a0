"""The paper's claim on cost, measured: time is linear in the nodes, and memory follows the batch, not the graph.

Graphs are synthetic, ten edges a node and 64 features; the network has width 128 and one layer. Tokens are held in
memory, (K+1)·64 half-precision numbers a node: that, the features and the edges are what grows with N. A large batch
goes through the network in pieces, on a CPU such as fit its cache (here 2,200 nodes), so that memory levels off.

Shapes: N nodes, K hops, B nodes in a batch
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cells import circumstances
from experiments.data import RANDOM
from experiments.figures import loglog
from experiments.harness import DONE, Cell, Grid
from experiments.measure import Budget

BUDGET = Budget(epochs=5, patience=5)
NETWORK = {"hidden_dim": 128, "num_layers": 1, "encoding_dim": 0, "feature_scaling": "none", "project_first": "never"}
STAGES = ("prepare", "train", "infer")
STAGE_TITLES = {"prepare": "preparation", "train": "5 epochs on 60 % of the nodes", "infer": "inference on all nodes"}


@dataclass(frozen=True)
class Study:
    """One quantity that grows while all others stay."""

    symbol: str
    name: str
    each: str
    values: tuple[int, ...]
    quick: tuple[int, ...]

    def cell(self, value: int, quick: bool = False) -> Cell:
        """The measurement at one value."""
        sizes = {"N": 3_000 if quick else 100_000, "K": 10, "B": 2000} | {self.symbol: value}
        settings = NETWORK | {"hops": sizes["K"], "batch_size": sizes["B"]}
        return Cell(f"{RANDOM}{sizes['N']}", "nagphormer", 0, settings)


STUDIES = (
    Study("N", "nodes", "node", (10_000, 30_000, 100_000, 300_000, 1_000_000), (2_000, 4_000)),
    Study("K", "hops", "hop", (2, 4, 8, 16, 32), (2, 4)),
    Study("B", "batch size", "node of a batch", (500, 1000, 2000, 4000, 8000, 16_000), (500, 1000)),
)


def measure_complexity(grid: Grid, quick: bool = False) -> None:
    """Fill what is missing."""
    grid.fill(study.cell(value, quick) for study in STUDIES for value in (study.quick if quick else study.values))


def complexity_section(folder: Path | None = None, quick: bool = False) -> str:
    """The measured slopes as Markdown, with a figure where a folder is given."""
    parts = ["## Complexity", "`python -m experiments complexity`", __doc__.split("\n\n")[1].replace("\n", " ")]
    for study in STUDIES:
        values = study.quick if quick else study.values
        found = {
            value: facts for value in values if (facts := study.cell(value, quick).read()) and facts["outcome"] == DONE
        }
        if len(found) > 1:
            parts.append(_told(study, found))
            if folder:
                parts.append(_drawn(study, found, folder))
    return "\n\n".join(parts)


def _told(study: Study, found: dict[int, dict[str, Any]]) -> str:
    """A table of one study, and its slopes."""
    columns = [study.symbol, *(f"{STAGE_TITLES[stage]}, s" for stage in STAGES), "peak memory, GB"]
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    for value, facts in found.items():
        numbers = [f"{value:,}", *(f"{facts['stages'][stage]:.3g}" for stage in STAGES), f"{facts['peak_gb']:.3f}"]
        lines.append(" | ".join(numbers))
    slopes = ", ".join(f"{STAGE_TITLES[stage]} {_slope(found, stage):z.1f}" for stage in STAGES)
    smaller, larger = (_growth(found, sizes) for sizes in (_smaller(found), _larger(found)))
    return (
        "\n".join(f"| {line} |" for line in lines)
        + f"\n\n{circumstances(list(found.values()))}. Exponent of {study.symbol}, fitted over the larger half of the "
        f"values: {slopes}. Memory, fitted by a line: {smaller} a {study.each} over the smaller half, {larger} over "
        "the larger."
    )


def _smaller(found: dict[int, dict[str, Any]]) -> list[int]:
    """The smaller half of the values, at least two."""
    return list(found)[: len(found) // 2 + 1]


def _larger(found: dict[int, dict[str, Any]]) -> list[int]:
    """The larger half of the values, at least two."""
    return list(found)[len(found) // 2 - (len(found) < 4) :]


def _growth(found: dict[int, dict[str, Any]], sizes: list[int]) -> str:
    """The slope of a line through the peaks of memory at some values."""
    rate = np.polyfit(sizes, [found[size]["peak_gb"] * 1e9 for size in sizes], 1)[0]
    return f"{rate / 1e6:.1f} MB" if rate > 999_900 else f"{rate / 1e3:z.1f} kB"


def _slope(found: dict[int, dict[str, Any]], stage: str) -> float:
    """The exponent of a power law through the larger half of the values, where start-up does not count."""
    sizes = _larger(found)
    times = [max(found[size]["stages"][stage], 1e-3) for size in sizes]
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def _drawn(study: Study, found: dict[int, dict[str, Any]], folder: Path) -> str:
    """Seconds against nodes and hops, memory against the batch size."""
    path = folder / "results" / f"complexity-{study.symbol}.svg"
    quantity, unit = ("Memory", "GB") if study.symbol == "B" else ("Seconds", "seconds")
    if study.symbol == "B":
        data = {"peak memory": [(str(value), [facts["peak_gb"]]) for value, facts in found.items()]}
    else:
        data = {
            STAGE_TITLES[stage]: [(str(value), [max(facts["stages"][stage], 1e-3)]) for value, facts in found.items()]
            for stage in STAGES
        }
    loglog(data, path, study.name, unit)
    return f"![{quantity} against the {study.name}](results/{path.name})"
