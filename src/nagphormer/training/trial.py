"""One trial of a tuning: a training that is watched after every epoch, judged by its validation nodes alone."""

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nagphormer.data.graph import Graph
from nagphormer.device import Machine, memory_explained
from nagphormer.errors import UserError
from nagphormer.files import locked
from nagphormer.progress import without_lines
from nagphormer.settings import TrainConfig
from nagphormer.tokens.hop2token import make_tokens
from nagphormer.tokens.store import MANIFEST, TokenStore
from nagphormer.training.history import History
from nagphormer.training.plan import Plan, decide
from nagphormer.training.run import train
from nagphormer.training.sources import tokens_folder

State = Literal["complete", "pruned", "failed"]
Report = Callable[[int, float], bool]
"""Takes an epoch and the best value up to it; says whether the trial shall go on."""
TOKENS_LOCK = ".tokens"


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a trial ended."""

    state: State
    """Pruned, too, where its settings could not be had; failed where its loss stopped being a number."""
    value: float | None
    """What is monitored, at the best epoch; None where no epoch was finished."""
    loss: float | None
    """Of the validation nodes, at the best epoch."""
    best_epoch: int
    epochs: int
    seconds: float
    reason: str = ""
    """Why it failed or could not be run."""


class _Pruned(Exception):
    """A trial that shall not go on."""


class _Watched(History):
    """A history that reports every epoch."""

    def __init__(self, metric: str, report: Report):
        super().__init__()
        self.metric, self._report = f"val_{metric}", report
        self.best: dict[str, Any] = {}
        """The record of the epoch that is kept."""

    def add(self, record: dict[str, Any]) -> None:
        """Append an epoch; may end the training."""
        super().add(record)
        if not self.best or self._rank(record) > self._rank(self.best):
            self.best = record
        if not self._report(record["epoch"], self.best[self.metric]):
            raise _Pruned

    def _rank(self, record: dict[str, Any]) -> tuple[float, float]:
        """As `EarlyStopping` chooses."""
        value, loss = record[self.metric], record["val_loss"]
        return (-value if self.metric == "val_loss" else value), -loss


def watched(graph: Graph, config: TrainConfig) -> str:
    """The name of what judges trials."""
    several = graph.labels is not None and graph.labels.ndim == 2
    return "micro_f1" if several and config.monitor == "accuracy" else config.monitor


def run_trial(graph: Graph, config: TrainConfig, here: Machine, folder: Path, report: Report) -> Result:
    """Train with some settings.

    Args:
        graph: with its splits.
        config: the settings.
        here: the machine.
        folder: that of the tuning.
        report: called after every epoch.
    """
    start, history = time.perf_counter(), _Watched(watched(graph, config), report)
    state: State = "complete"
    reason = ""
    try:
        with warnings.catch_warnings(action="ignore"), without_lines():  # said once, before the first trial
            plan = decide(graph, config, here)
            trained, _ = train(graph, plan, here, _shared_store(graph, plan, here, folder), history=history)
        if reason := trained.best.outcome["diverged"]:
            state = "failed"
    except _Pruned:
        state = "pruned"
    except UserError as error:  # these settings cannot be had, as where memory does not suffice
        state, reason = "pruned", str(error)
    return Result(
        state=state,
        value=history.best.get(history.metric),
        loss=history.best.get("val_loss"),
        best_epoch=history.best.get("epoch", 0),
        epochs=len(history.records),
        seconds=round(time.perf_counter() - start, 3),
        reason=reason,
    )


def _shared_store(graph: Graph, plan: Plan, here: Machine, folder: Path) -> TokenStore | None:
    """The tokens of a trial, made by the first one that needs them; None where features are projected first."""
    if plan.way == "projected":
        return None
    path = tokens_folder(folder / "run", graph, plan.tokens)
    made = (path / MANIFEST).is_file()
    with (
        nullcontext() if made else locked(folder / TOKENS_LOCK),  # one at a time: making them takes memory
        memory_explained(f"making tokens of {plan.tokens.hops} hops", "lower hops"),
    ):
        return make_tokens(graph, plan.tokens, path, device=here.device)
