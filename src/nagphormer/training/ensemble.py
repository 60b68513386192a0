"""Several models that answer together: trained one after another on shared tokens, combined by validation nodes.

The paper trains one network. Tokens are made once, so that many small and different ones cost little more, and their
weighted mean is better than each: greedy selection with replacement (Caruana et al., "Ensemble selection from libraries
of models", ICML 2004), shrunk toward the plain mean where validation nodes are few.

Shapes: n validation nodes, M members, C classes
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from nagphormer.data.graph import Graph
from nagphormer.device import Machine
from nagphormer.errors import UserError
from nagphormer.files import format_size
from nagphormer.metrics import accuracy, log_loss, micro_f1
from nagphormer.progress import note
from nagphormer.settings import TrainConfig
from nagphormer.tokens.store import STORED
from nagphormer.training.batches import TokenSource
from nagphormer.training.calibration import temperature
from nagphormer.training.forward import forward
from nagphormer.training.plan import Plan, decide, labels_fit
from nagphormer.training.ranks import ALONE
from nagphormer.training.run import Run, Subject, train
from nagphormer.training.sources import Made
from nagphormer.training.task import Task

if TYPE_CHECKING:
    from nagphormer.training.ensemble_folder import EnsembleFolder

PICKS = 50
"""Rounds of greedy selection."""
FEW = 100.0
"""Validation nodes at which the plain mean counts as much as the selection."""
LEAST = 0.02
"""Weights below this are left out: a member costs as much to ask as if it counted."""
TINY = 1e-7
"""Probabilities are kept this far from 0 and 1."""


@dataclass(frozen=True)
class Part:
    """A member of an ensemble: a run of its own, and what it is worth."""

    name: str
    run: Run
    weight: float
    """Its share in the answers; 0 where validation found no use for it."""
    score: float
    """Accuracy on the validation nodes, micro-F1 for several labels a node."""
    loss: float
    """Log loss there, of calibrated probabilities."""
    train_seconds: float
    """For its tokens, as far as no member before it had made them, and training."""
    predict_seconds: float
    """For a million nodes, from the time for the validation nodes."""

    def facts(self) -> dict[str, Any]:
        """What it is worth and costs, ready for JSON."""
        names = ("name", "weight", "score", "loss", "train_seconds", "predict_seconds")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Ensemble(Subject):
    """Models that answer together."""

    parts: tuple[Part, ...]
    """In the order of their training; those of weight 0 are not asked."""
    temperature: float
    """What the logarithms of mean probabilities are divided by before they are probabilities again."""
    recipe: str
    """The recipe that names the members."""
    given: dict[str, Any]
    """Settings that were given beside it."""

    @property
    def asked(self) -> tuple[Part, ...]:
        """The members that count, the heaviest first."""
        return tuple(sorted((part for part in self.parts if part.weight > 0), key=lambda part: -part.weight))

    @property
    def lead(self) -> Run:
        """The run of the heaviest member."""
        return self.asked[0].run

    def is_of(self, graph: Graph) -> bool:
        """Whether a graph is the one it was trained on."""
        return self.lead.is_of(graph)

    def of_parts(self, parts: Sequence[Part]) -> Ensemble:
        """The same with some of the members alone."""
        total = sum(part.weight for part in parts)
        return replace(self, parts=tuple(replace(part, weight=part.weight / total) for part in parts))

    def combine(self, probabilities: Sequence[torch.Tensor]) -> torch.Tensor:
        """Probabilities of the members that are asked, in their order, (n, C) each, as one, (n, C)."""
        mean = sum(part.weight * each for part, each in zip(self.asked, probabilities, strict=True))
        assert isinstance(mean, torch.Tensor)
        return cooled(mean, self.temperature, self.classes.multi_label)


Trained = Run | Ensemble
"""What can be used: one model, or several that answer together."""


def lead_of(run: Trained) -> Run:
    """The run itself, or that of the heaviest member."""
    return run if isinstance(run, Run) else run.lead


def runs_of(run: Trained) -> tuple[Run, ...]:
    """The runs that are asked."""
    return (run,) if isinstance(run, Run) else tuple(part.run for part in run.asked)


class MeanModel(nn.Module):
    """The members of an ensemble as one module: from the tokens of each to mean probabilities."""

    def __init__(self, run: Ensemble):
        super().__init__()
        self.models = nn.ModuleList(part.run.best.model for part in run.asked)
        self._run = run

    def forward(self, tokens: Sequence[tuple[torch.Tensor, ...]]) -> torch.Tensor:
        """Probabilities, (B, C).

        Args:
            tokens: for each member that is asked, the heaviest first, its tokens (B, K+1, F), and with them, where it
                reads such, tokens of labels (B, L, C).
        """
        found = []
        for part, model, (own, *labels) in zip(self._run.asked, self.models, tokens, strict=True):
            found.append(part.run.probability(model(own, labels=labels[0] if labels else None)))
        return self._run.combine(found)


def cooled(probability: torch.Tensor, heat: float, multi_label: bool) -> torch.Tensor:
    """Probabilities with their logarithms, or log odds, divided by a temperature, (n, C)."""
    scores = as_scores(probability, multi_label) / heat
    return scores.sigmoid() if multi_label else scores.softmax(dim=1)


def as_scores(probability: torch.Tensor, multi_label: bool) -> torch.Tensor:
    """Scores that give these probabilities, (n, C)."""
    kept = probability.clamp(TINY, 1 - TINY)
    return kept.logit() if multi_label else kept.log()


def train_members(
    graph: Graph,
    configs: dict[str, TrainConfig],
    here: Machine,
    recipe: str,
    given: dict[str, Any],
    folder: EnsembleFolder | None = None,
    time_limit: float = inf,
    room: float = inf,
) -> tuple[Ensemble, dict[str, TokenSource]]:
    """Train the members of a recipe in their order, and combine them.

    Args:
        graph: with labels and splits.
        configs: settings of the members by name, those that matter most first.
        here: where.
        recipe: what names them.
        given: settings that were given beside it.
        folder: where the runs are written; members that are there already are not trained again.
        time_limit: seconds for all of it, and for predicting every node. The first member always ends.
        room: bytes that tokens may take; copies with fewer edges are left out where they do not fit.

    Returns:
        The ensemble, and the tokens of its members by name.
    """
    start = time.monotonic()
    subject, ranks = Subject.of(graph), ALONE if folder is None else folder.ranks
    plans = ranks.agreed(_planned(graph, configs, here, folder, room))
    if folder is not None:
        folder.begin(subject, graph, recipe, given, plans)
    made: Made = {}
    trained: list[_Trained] = []
    sources: dict[str, TokenSource] = {}
    for number, (name, plan) in enumerate(plans.items(), start=1):
        left = ranks.agreed(time_limit - (time.monotonic() - start) - _seconds_to_predict(trained, graph))
        if ranks.agreed(bool(trained) and left < _least_time(trained)):
            note(f"{len(plans) - number + 1} of {len(plans)} members are left out: {max(left, 0):.0f} s are left")
            break
        limit = inf if number == 1 else time.monotonic() + left
        told = f"; {max(left, 0):.0f} s are left" if left < inf else _expected(trained, len(plans))
        note(f"member {number} of {len(plans)}, {name}{told}")
        found = _train_one(graph, name, plan, here, folder, made, limit)
        if found is None:
            note(f"  {name} is left out: its loss stopped being a number before an epoch was finished")
            continue
        trained.append(found)
        sources[name] = found.source
        note(f"  {name}: validation {found.metric} {found.score:.4f}, log loss {found.loss:.4f}")
    if not trained:
        raise UserError("every member diverged: are the features very large? Scale them first")
    run = combined(graph, subject, trained, recipe, given)
    if folder is not None:
        folder.finish(run)
    return run, sources


@dataclass(frozen=True)
class _Trained:
    """A member that was trained, and its answers on the validation nodes."""

    name: str
    run: Run
    source: TokenSource
    probability: torch.Tensor
    """(n, C)."""
    metric: str
    score: float
    loss: float
    train_seconds: float
    predict_seconds: float
    """For the validation nodes."""


def _train_one(
    graph: Graph, name: str, plan: Plan, here: Machine, folder: EnsembleFolder | None, made: Made, deadline: float
) -> _Trained | None:
    """Train a member; None where its loss stopped being a number before an epoch was finished."""
    start = time.monotonic()
    own = None if folder is None else folder.member(name)
    run, source = train(graph, plan, here, None, own, made=made, deadline=deadline)
    if not run.best.outcome["best_epoch"]:
        return None
    trained = time.monotonic()
    nodes = torch.from_numpy(np.array(run.splits["val"]))
    model = run.best.model.to(source.device).eval()
    scores = torch.cat(
        [part.float().cpu() for _, part in forward(model, source, nodes, model.classify, plan.precision)]
    )
    probability = run.probability(scores)
    target = run.classes.targets(graph, run.splits["val"])
    task = Task(graph, run.classes, "cpu")
    measure = micro_f1 if run.classes.multi_label else accuracy
    return _Trained(
        name,
        run,
        source,
        probability,
        task.metric,
        float(measure(target, probability.numpy())),
        float(log_loss(target, probability.numpy())),
        max(trained - start, sum(record["seconds"] for record in run.best.history)),  # also of what was begun before
        time.monotonic() - trained,
    )


def combined(graph: Graph, subject: Subject, trained: list[_Trained], recipe: str, given: dict[str, Any]) -> Ensemble:
    """Members with their weights, by the validation nodes."""
    target = torch.from_numpy(np.array(subject.classes.targets(graph, subject.splits["val"])))
    answers = torch.stack([each.probability for each in trained])  # (M, n, C)
    weights = chosen_weights(answers, target)
    mean = torch.einsum("m,mnc->nc", torch.from_numpy(weights).float(), answers)
    heat = temperature(as_scores(mean, subject.classes.multi_label), target)
    million = 1e6 / max(len(target), 1)
    parts = tuple(
        Part(
            each.name,
            each.run,
            float(weight),
            each.score,
            each.loss,
            round(each.train_seconds, 2),
            round(each.predict_seconds * million, 2),
        )
        for each, weight in zip(trained, weights, strict=True)
    )
    return Ensemble(**vars(subject), parts=parts, temperature=heat, recipe=recipe, given=given)


def chosen_weights(answers: torch.Tensor, target: torch.Tensor) -> np.ndarray:
    """Weights of the members, which sum to one, (M,).

    Args:
        answers: their probabilities of the validation nodes, (M, n, C).
        target: classes, (n,), or 0 and 1, (n, C).

    >>> good, poor = torch.tensor([[0.9, 0.1]] * 500), torch.tensor([[0.5, 0.5]] * 500)
    >>> chosen_weights(torch.stack([good, poor]), torch.zeros(500, dtype=torch.long)).round(1).tolist()
    [0.9, 0.1]
    """
    picked = np.zeros(len(answers))
    total = torch.zeros_like(answers[0])
    for count in range(1, PICKS + 1):
        losses = [_surprise((total + each) / count, target) for each in answers]
        best = int(np.argmin(losses))
        picked[best] += 1
        total += answers[best]
    nodes = len(target)
    weights = (nodes * picked / PICKS + FEW / len(answers)) / (nodes + FEW)
    weights[weights < LEAST] = 0
    return weights / weights.sum()


def _surprise(probability: torch.Tensor, target: torch.Tensor) -> float:
    """Mean log loss of probabilities."""
    kept = probability.double().clamp(TINY, 1 - TINY)
    if target.ndim == 2:
        return -float(torch.where(target > 0, kept.log(), (1 - kept).log()).mean())
    return -float(kept.gather(1, target[:, None].long()).log().mean())


def _planned(
    graph: Graph, configs: dict[str, TrainConfig], here: Machine, folder: EnsembleFolder | None, room: float
) -> dict[str, Plan]:
    """The plans of the members; where they were begun, they go on as they were, whatever the machine is like now."""
    begun = {} if folder is None else folder.begun()
    plans: dict[str, Plan] = {}
    for name, config in configs.items():
        if plans and not labels_fit(graph, config, here):
            note(f"{name} is left out: the tokens of labels that it reads do not fit memory")
            continue
        own = None
        if folder is not None and name in begun:
            config, own = replace(config, edge_copies=begun[name]["edge_copies"]), folder.member(name).begun
        plans[name] = decide(graph, config, here, begun=own)
    if not begun:
        return _that_fit(graph, plans, room)
    return {name: plan for name, plan in plans.items() if name in begun}


def _that_fit(graph: Graph, plans: dict[str, Plan], room: float) -> dict[str, Plan]:
    """The plans whose tokens fit into so many bytes together; copies are left out first, then members."""
    kept: dict[str, Plan] = {}
    seen: set[tuple[Any, int]] = set()
    used, without, dropped = 0.0, [], []
    for name, plan in plans.items():
        one = graph.num_nodes * (plan.tokens.hops + 1) * plan.model.input_dim * STORED[plan.tokens.dtype].itemsize
        wanted = [(plan.tokens, number) for number in range(plan.given.edge_copies + 1)]
        if plan.way == "projected":
            one, wanted = 0, []
        new = [each for each in wanted if each not in seen]
        own = [each for each in new if each[1] == 0]
        if used + one * len(new) > room and plan.given.edge_copies:
            plan = replace(plan, given=replace(plan.given, edge_copies=0))
            without.append(name)
            new = own
        if used + one * len(new) > room and kept:
            dropped.append(name)
            continue
        used += one * len(new)
        seen |= set(new)
        kept[name] = plan
    if without:
        note(f"copies with fewer edges do not fit {format_size(room)}: {', '.join(without)} go without")
    if dropped:
        note(f"members whose tokens do not fit {format_size(room)} are left out: {', '.join(dropped)}")
    note(f"{len(kept)} members on tokens of {format_size(used)}")
    return kept


def _seconds_to_predict(trained: list[_Trained], graph: Graph) -> float:
    """Seconds that all members so far would take to predict every node."""
    return sum(each.predict_seconds / max(len(each.probability), 1) * graph.num_nodes for each in trained)


def _expected(trained: list[_Trained], count: int) -> str:
    """How long the rest of so many members will take, in words, once one was trained."""
    if not trained:
        return ""
    mean = sum(each.train_seconds for each in trained) / len(trained)
    return f"; the rest takes about {mean * (count - len(trained)):.0f} s"


def _least_time(trained: list[_Trained]) -> float:
    """Seconds without which another member is not begun: a third of what the cheapest so far took."""
    return min(each.train_seconds for each in trained) / 3
