"""All that is measured, a command each: `python -m experiments table-small --quick`, `python -m experiments render`."""

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from experiments import records
from experiments.complexity import BUDGET, complexity_section, measure_complexity
from experiments.data import QUICK, obtainable, title
from experiments.harness import DONE, Grid, Limits
from experiments.items import ITEMS, Item, in_precision
from experiments.measure import Budget
from experiments.render import render, section

QUICK_BUDGET = Budget(epochs=30, patience=30)


def main() -> None:
    options = _parser().parse_args()
    if options.command == "render":
        print(f"wrote {render(Path('docs'))}")
    elif options.quick:
        with tempfile.TemporaryDirectory() as folder:  # a check: always measured anew
            records.RESULTS = Path(folder)
            _quick(options)
    elif options.command == "complexity":
        measure_complexity(_grid(options, BUDGET))
        print(complexity_section())
    else:
        item = _narrowed(ITEMS[options.command], options)
        item.fill(_grid(options, item.budget), options.seeds)
        print(section(item))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("render", help="write docs/results.md and its figures from the recorded cells")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--quick", action="store_true", help=f"{' and '.join(QUICK)}, one setting, 30 epochs")
    common.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    common.add_argument("--jobs", type=int, default=1, help="cells measured at once (default 1)")
    common.add_argument("--memory", type=float, help="GB a cell may use (default: its share of 90 %%)")
    common.add_argument("--time-limit", type=float, default=1800, help="seconds a cell may take (default 1800)")
    commands.add_parser("complexity", parents=[common], help="time against N and K, memory against the batch size")
    for item in ITEMS.values():
        command = commands.add_parser(item.name, parents=[common], help=item.title)
        command.add_argument("--datasets", nargs="+", choices=item.datasets, metavar="NAME", help="default: all")
        methods = sorted({row.method for row in item.rows})
        command.add_argument("--methods", nargs="+", choices=methods, metavar="NAME", help=", ".join(methods))
        text = f"how many, from 0 on (default {item.seeds})"
        command.add_argument("--seeds", type=int, default=item.seeds, help=text)
        if item.name == "accuracy":
            command.add_argument("--precision", choices=("fp32", "bf16"), help="too, beside the recipe's own")
    return parser


def _grid(options: argparse.Namespace, budget: Budget) -> Grid:
    if options.device.startswith("cuda"):
        total = torch.cuda.get_device_properties(options.device).total_memory
    else:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = options.memory or round(0.9 * total / options.jobs / 1e9, 1)
    return Grid(options.device, options.jobs, Limits(memory, options.time_limit), budget)


def _narrowed(item: Item, options: argparse.Namespace) -> Item:
    """The item with the methods, seeds and data sets asked for, as far as they can be had."""
    if getattr(options, "precision", None):
        item = in_precision(item, options.precision)
    chosen = (row for row in item.rows if not options.methods or row.method in options.methods)
    rows = tuple(replace(row, seeds=options.seeds) for row in chosen)
    wanted = [name for name in item.datasets if options.quick or not options.datasets or name in options.datasets]
    missing = [name for name in wanted if not obtainable(name)]
    if missing:
        print(f"no data here for {', '.join(map(title, missing))}", file=sys.stderr)
    return replace(item, rows=rows, datasets=tuple(name for name in wanted if name not in missing))


def _quick(options: argparse.Namespace) -> None:
    """Run every row once and see that it beats naming the commonest class."""
    if options.command == "complexity":
        measure_complexity(_grid(options, BUDGET), quick=True)
        print(complexity_section(quick=True))
        return
    item = _narrowed(ITEMS[options.command].quick(), options)
    item.fill(_grid(options, QUICK_BUDGET), seeds=1)
    print(section(item))
    poor = []
    for row in item.rows:
        for dataset in item.datasets:
            facts = row.tuning(dataset)[0].read()
            if not facts or facts["outcome"] != DONE or row.shown(facts) <= facts["majority"]:
                poor.append(f"{row.title} on {title(dataset)}")
    if poor:
        sys.exit(f"no better than the commonest class, or not measured: {'; '.join(poor)}")
    print(f"each of {len(item.rows)} rows beats the commonest class on {' and '.join(map(title, item.datasets))}")


if __name__ == "__main__":
    main()
