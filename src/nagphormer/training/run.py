"""From a plan to a run: what was trained, with all that is needed to use it."""

from __future__ import annotations

import hashlib
import os
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from nagphormer.data.classes import Classes, name_of
from nagphormer.data.graph import Graph
from nagphormer.device import Machine, memory_explained
from nagphormer.model.classifier import Classifier, weights_drawn
from nagphormer.model.network import build
from nagphormer.progress import note
from nagphormer.settings import Dtype, TrainConfig
from nagphormer.tokens.fitted import Fitted
from nagphormer.tokens.labels import Shown
from nagphormer.tokens.store import TokenStore
from nagphormer.training.batches import TokenSource
from nagphormer.training.calibration import doubt, probability_of, temperature
from nagphormer.training.forward import forward
from nagphormer.training.history import History
from nagphormer.training.loop import Trainer
from nagphormer.training.plan import Plan
from nagphormer.training.ranks import ALONE
from nagphormer.training.sources import Made, training_source
from nagphormer.training.task import Task

RARE = 0.1
"""Share of the validation nodes below which a class is easily overlooked."""

if TYPE_CHECKING:
    from nagphormer.training.run_folder import RunFolder


@dataclass(frozen=True)
class GraphFacts:
    """What a run knows of the graph it was trained on."""

    name: str | None
    fingerprint: str
    labels: str
    """SHA-256 of the labels."""
    num_nodes: int


@dataclass(frozen=True)
class StoreFacts:
    """The token store that a run was trained on."""

    path: str | None = None
    """Where it lies, seen from the run folder; None where tokens were not given."""
    dtype: Dtype = "float16"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a run is about; known before training."""

    classes: Classes
    splits: dict[str, np.ndarray]
    graph: GraphFacts
    store: StoreFacts

    @classmethod
    def of(cls, graph: Graph, store: TokenStore | None = None, folder: Path | None = None) -> Subject:
        """The subject of a run on a graph, perhaps with its token store, to be kept in a folder."""
        labels = hashlib.sha256(np.ascontiguousarray(graph.labels).data).hexdigest()
        facts = GraphFacts(graph.name, graph.fingerprint, labels, graph.num_nodes)
        used = StoreFacts()
        if store is not None:
            seen = os.path.relpath(store.path, folder) if store.path and folder else None  # both can be moved together
            used = StoreFacts(seen, store.tokens.dtype)
        return cls(classes=Classes.of(graph), splits=dict(graph.splits), graph=facts, store=used)


@dataclass(frozen=True)
class Member:
    """One trained network."""

    plan: Plan
    model: Classifier
    history: list[dict[str, Any]]
    """One record per epoch."""
    outcome: dict[str, Any]
    """Best epoch, its validation metric and loss, epochs run, and where training diverged if it did."""
    weight: float = 1.0
    """Its share in the run's answers."""

    @property
    def num_parameters(self) -> int:
        """Number of weights."""
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def ended_by(self) -> Literal["epochs", "patience", "time", "divergence"]:
        """What ended its training; epochs where patience ran out with the last of them."""
        if self.outcome.get("diverged"):
            return "divergence"
        if self.outcome.get("out_of_time"):
            return "time"
        return "epochs" if self.outcome["epochs"] == self.plan.resolved.epochs else "patience"


@dataclass(frozen=True, kw_only=True)
class Run(Subject):
    """What was trained."""

    members: tuple[Member, ...]
    """Those that answer together; today there is one."""
    fitted: Fitted | None = None
    """What tokens take from the graph of training; 0.1.0 did not keep it."""
    temperature: float = 1.0
    """What scores are divided by before they become probabilities; 0.1.0 knew none."""
    doubt: float = 0.0
    """Share of the labels that may be any class, whatever the scores say; found where labels are noisy."""
    shown: Shown | None = None
    """Labels that the model reads, if it reads any."""

    def probability(self, scores: torch.Tensor) -> torch.Tensor:
        """Calibrated probabilities of scores, (n, C); of several labels a node each on its own."""
        return probability_of(scores.float(), self.temperature, self.doubt, self.classes.multi_label)

    def is_of(self, graph: Graph) -> bool:
        """Whether a graph is the one it was trained on."""
        return graph.fingerprint == self.graph.fingerprint or (
            self.fitted is None and graph.is_known_as(self.graph.fingerprint)
        )

    @property
    def best(self) -> Member:
        """The member that is asked what only one network can say: embeddings, attention, settings."""
        return self.members[0]

    @property
    def num_features(self) -> int:
        """Features of a node; a graph without any has one, log(1 + degree)."""
        if self.fitted is not None:
            return max(self.fitted.num_features, 1)
        return self.best.plan.model.input_dim - self.best.plan.tokens.encoding_dim

    @property
    def config(self) -> TrainConfig:
        """The settings that were used."""
        return self.best.plan.resolved

    @property
    def diverged(self) -> str:
        """Where the loss stopped being a number and what is left, or nothing."""
        outcome = self.best.outcome
        if not outcome.get("diverged"):
            return ""
        epoch = outcome["best_epoch"]
        kept = f"the weights of epoch {epoch} are kept" if epoch else "only the initial weights are left"
        return f"{outcome['diverged']}: training stopped, {kept}; lower lr, or set clip_norm to 1"


def train(
    graph: Graph,
    plan: Plan,
    here: Machine,
    store: TokenStore | None = None,
    folder: RunFolder | None = None,
    tensorboard: bool = False,
    made: Made | None = None,
    deadline: float = inf,
    history: History | None = None,
) -> tuple[Run, TokenSource]:
    """Train as planned.

    Args:
        graph: the graph of the plan.
        plan: what to do.
        here: where.
        store: the graph's tokens, if they are made already.
        folder: where the run is written; a run that was begun in it goes on, one that can not comes back as it is.
        tensorboard: also write events for TensorBoard into the run folder.
        made: tokens that other trainings on this graph have made, to be used and added to.
        deadline: when to stop at the latest, after an epoch, by `time.monotonic`.
        history: takes every epoch's record where there is no folder; what its `add` raises ends the training.

    Returns:
        What was trained, and the tokens it was trained on.
    """
    if plan.tokens.encoding_dim:
        note(
            f"{plan.tokens.encoding_dim} Laplacian eigenvectors are joined to the features: they tie the model to this "
            f"graph and those like it"
        )
    subject = Subject.of(graph, store, folder.path if folder else None)
    config, ranks = plan.resolved, folder.ranks if folder else ALONE
    with weights_drawn(config.seed):
        model = build(plan.model)
    with folder.begin(plan, subject, graph) if folder else nullcontext():
        checkpoints = folder.checkpoints() if folder else None
        history = folder.history(tensorboard) if folder else history
        with (
            ranks.in_turn(),
            memory_explained(  # the first one stores the tokens, the others read them
                f"making tokens of {config.hops} hops", "lower hops, or prepare them with nagphormer prepare"
            ),
        ):
            place = None if folder is None else folder.whole or folder.path
            source = training_source(graph, plan, here.device, store, place, made)
        if folder is not None and (ended := folder.ended(plan)) is not None:
            return ended, source
        with memory_explained(
            f"training with batch_size={config.batch_size}, hidden_dim={config.hidden_dim}, hops={config.hops}",
            "lower batch_size first, then hidden_dim",
        ):
            task = Task(graph, subject.classes, here.device, config.class_weights)
            trainer = Trainer(model, source, task, subject.splits, config, history, checkpoints, ranks, deadline)
            if folder is not None:
                folder.extend(plan, subject)
            outcome = trainer.run()
            heat, share = (1.0, 0.0) if outcome.diverged else ranks.agreed(_calibrated(trainer, plan, ranks.first))
    _warn_of_rare_classes(graph, subject, config, outcome.best_metric)
    member = Member(plan, model, trainer.history.records, outcome.facts())
    fitted = Fitted.of(graph, plan.tokens, source.statistics, source.encoding, source.components)
    shown = Shown.of(graph) if plan.model.label_tokens else None
    run = Run(**vars(subject), members=(member,), fitted=fitted, temperature=heat, doubt=share, shown=shown)
    if folder is not None:
        folder.finish(run)
    return run, source


def _calibrated(trainer: Trainer, plan: Plan, first: bool) -> tuple[float, float]:
    """Temperature and doubt of a trained network, by its validation nodes; the first rank looks for them."""
    if not first:
        return 1.0, 0.0
    model, source, nodes = trainer.model, trainer.source, torch.from_numpy(np.array(trainer.val_nodes))
    found = forward(model, source, nodes, model.classify, plan.precision)
    scores = torch.cat([part.float().cpu() for _, part in found])
    target = trainer.task.labels[nodes.to(source.device)]
    return doubt(scores, target, temperature(scores, target))


def _warn_of_rare_classes(graph: Graph, subject: Subject, config: TrainConfig, accuracy: float | None) -> None:
    """Say it where the kept weights are as right as naming the commonest class would be, and a class is rare."""
    if subject.classes.multi_label or accuracy is None:
        return
    assert graph.labels is not None
    share = np.bincount(graph.labels[subject.splits["val"]]) / len(subject.splits["val"])
    rare = np.flatnonzero((share > 0) & (share < RARE))
    if not len(rare) or abs(accuracy - share.max()) > 1e-9:
        return
    common, example = (
        name_of(subject.classes.names, int(label)) for label in (share.argmax(), rare[share[rare].argmin()])
    )
    ways = ["class_weights='balanced' has it weigh more"] * (config.class_weights == "none")
    if config.monitor in ("accuracy", "loss"):
        ways.append("monitor='average_precision' or 'macro_f1' chooses the epoch that finds it best")
    warnings.warn(
        f"the best validation accuracy, {accuracy:.4f}, is the share of the commonest class, {common!r}: a class as "
        f"rare as {example!r} may never be predicted" + (f"; {', and '.join(ways)}" if ways else ""),
        stacklevel=3,
    )
