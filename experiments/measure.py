"""One method on one graph: prepared, trained, and asked for every node.

Every method gets the same splits and the same rule for stopping, by the metric that the data set is judged by; test
labels are read once, after training.

Shapes: N nodes, C classes
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.baselines.method import Method, Settings, Task
from experiments.cells import measured
from experiments.data import judged_by
from nagphormer import Graph, NodeClassifier
from nagphormer.metrics import METRICS, accuracy, ece, log_loss, roc_auc
from nagphormer.training.comparison import logistic_accuracy, mlp_accuracy
from nagphormer.training.stopping import EarlyStopping


@dataclass(frozen=True)
class Budget:
    """How long a method may train: in a table the same for all, but where a row says otherwise."""

    epochs: int = 3000
    patience: int = 100
    """Epochs without a better validation metric or loss."""
    restart_on_ties: bool = False
    """Whether one that is as good restarts patience."""

    def covers(self, other: "Budget", epochs: int) -> bool:
        """Whether a run that ended after so many epochs of another budget is what this one would have given."""
        same_end = epochs == self.epochs if epochs == other.epochs else epochs <= self.epochs
        same_rule = (self.patience, self.restart_on_ties) == (other.patience, other.restart_on_ties)
        return same_rule and same_end


Measure = Callable[[Graph, Settings, int, str, Budget], dict[str, Any]]
"""Facts of a method: from graph, settings, seed, device and budget."""


def baseline(build: Callable[..., Method]) -> Measure:
    """How a method that is built from a task and its settings is measured."""
    return partial(_measure_baseline, build)


def _measure_baseline(
    build: Callable[..., Method], graph: Graph, settings: Settings, seed: int, device: str, budget: Budget
) -> dict[str, Any]:
    task = Task(graph, device, seed)
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU: wide features are read several times as fast
    clock = _Clock(device)
    task.load()
    torch.manual_seed(seed)
    method = build(task, **settings)
    prepared = clock.lap()
    monitor = judged_by(graph.name or "")
    stopping = _train(method, budget, monitor)
    trained = clock.lap()
    with torch.no_grad():
        scores = method.eval().infer()
    inferred = clock.lap()
    return {
        **_quality(graph, _probabilities(scores)),
        "monitor": monitor,
        "val_loss": stopping["best_loss"],
        "best_epoch": stopping["best_epoch"],
        "epochs": stopping["epochs"],
        "stages": {"prepare": prepared, "train": trained, "infer": inferred},
        "parameters": sum(weight.numel() for weight in method.parameters()),
    }


def _train(method: Method, budget: Budget, monitor: str = "accuracy") -> dict[str, Any]:
    """Train until patience or epochs run out; the method is left with the best epoch's weights."""
    stopping = EarlyStopping(budget.patience, budget.restart_on_ties)
    nodes, labels = method.task.splits["val"], method.task.labels
    best: dict[str, torch.Tensor] = {}
    epoch = 0
    while epoch < budget.epochs and not stopping.done:
        epoch += 1
        method.train()
        method.train_epoch()
        method.eval()
        with torch.no_grad():
            metric, loss = _judge(method.logits(nodes), labels[nodes], monitor)
        if not np.isfinite(loss):
            raise FloatingPointError(f"the validation loss became {loss} in epoch {epoch}")
        method.validated(loss)
        if stopping.update(epoch, metric, loss):
            best = {name: tensor.detach().clone() for name, tensor in method.state_dict().items()}
        if epoch <= method.patience_from:
            stopping.idle = 0
    method.load_state_dict(best)
    return {"best_epoch": stopping.best_epoch, "best_loss": stopping.best_loss, "epochs": epoch}


def _judge(scores: torch.Tensor, labels: torch.Tensor, monitor: str) -> tuple[float, float]:
    """What is monitored of some nodes, and their loss: (n, C) and (n,)."""
    loss = nn.functional.cross_entropy(scores, labels)
    if monitor == "accuracy":
        right = (scores.argmax(dim=1) == labels).float().mean()
        found, lost = torch.stack([right, loss]).tolist()  # both at once: reading a number waits for the GPU
        return found, lost
    if not torch.isfinite(loss):
        return 0.0, loss.item()
    return METRICS[monitor](labels.cpu().numpy(), _probabilities(scores)), loss.item()


def _probabilities(scores: torch.Tensor) -> np.ndarray:
    """The softmax of scores as it is, (n, C): no method but ours calibrates it."""
    return scores.softmax(dim=1, dtype=torch.float32).cpu().numpy()


def measure_ours(graph: Graph, settings: Settings, seed: int, device: str, budget: Budget) -> dict[str, Any]:
    """NAGphormer with the settings of a recipe, beside the other methods."""
    torch.set_float32_matmul_precision("high")  # as for the others
    return _measure_estimator(_estimator({"recipe": "paper"} | settings, seed, device, budget), graph, device)


def measure_recipe(graph: Graph, settings: Settings, seed: int, device: str, budget: Budget) -> dict[str, Any]:
    """The estimator with the paper's recipe, and the settings that were decided."""
    classifier = _estimator({"recipe": "paper"} | settings, seed, device, budget)
    return _measure_estimator(classifier, graph, device) | {"config": asdict(classifier.config_)}


def measure_transformer(graph: Graph, settings: Settings, seed: int, device: str, budget: Budget) -> dict[str, Any]:
    """The recipe that was the default once, and the accuracies of two plain models."""
    return measure_defaults(graph, {"recipe": "transformer"} | settings, seed, device, budget)


def measure_defaults(graph: Graph, settings: Settings, seed: int, device: str, budget: Budget) -> dict[str, Any]:
    """The estimator as it is, the settings that were decided, and the accuracies of two plain models.

    They are an MLP on the features and logistic regression on the same tokens, both tuned by validation. Seconds and
    memory are the estimator's alone.
    """
    classifier = _estimator(settings, seed, device, budget)
    facts = measured(lambda: _measure_estimator(classifier, graph, device), device)
    config, tokens = classifier.config_, classifier.tokens_
    assert tokens is not None
    return facts | {
        "mlp": mlp_accuracy(graph, config),
        "logistic_regression": logistic_accuracy(graph, config, tokens),
        "config": asdict(config),
    }


def measure_default(graph: Graph, settings: Settings, seed: int, device: str, budget: Budget) -> dict[str, Any]:
    """The estimator as it is: by epochs and patience of its own, whatever the budget."""
    return _measure_estimator(NodeClassifier(**settings, seed=seed, device=device), graph, device)


def measure_best(graph: Graph, settings: Settings, seed: int, device: str, budget: Budget) -> dict[str, Any]:
    """The estimator with the recipe `best`: by epochs and patience of its own, whatever the budget."""
    return measure_default(graph, {"recipe": "best"} | settings, seed, device, budget)


def _estimator(settings: Settings, seed: int, device: str, budget: Budget) -> NodeClassifier:
    return NodeClassifier(**(asdict(budget) | settings), seed=seed, device=device)


def _measure_estimator(classifier: NodeClassifier, graph: Graph, device: str) -> dict[str, Any]:
    """Everything but the epochs counts as preparation."""
    clock = _Clock(device)
    classifier.fit(graph)
    fitted = clock.lap()
    scores = classifier.predict_proba(graph)
    inferred = clock.lap()
    members = classifier.leaderboard()
    trained = round(sum(member["train_seconds"] for member in members), 3)
    return {
        **_quality(graph, scores),
        **({"members": members} if len(members) > 1 else {}),
        "monitor": classifier.monitor or "accuracy",
        "val_loss": classifier.history_[classifier.best_epoch_ - 1]["val_loss"],
        "best_epoch": classifier.best_epoch_,
        "epochs": len(classifier.history_),
        "stages": {"prepare": round(fitted - trained, 3), "train": trained, "infer": inferred},
        "parameters": sum(weight.numel() for weight in classifier.model_.parameters()),
    }


def _quality(graph: Graph, probability: np.ndarray) -> dict[str, float]:
    """How good probabilities of all nodes are on validation and test nodes, (N, C).

    Beside it stands what naming the commonest training class would give.
    """
    labels = np.asarray(graph.labels)
    commonest = np.bincount(labels[graph.splits["train"]]).argmax()
    val, test = ((labels[nodes], probability[nodes]) for nodes in (graph.splits["val"], graph.splits["test"]))
    areas = {"test_roc_auc": roc_auc(*test), "val_roc_auc": roc_auc(*val)} if probability.shape[1] == 2 else {}
    return {
        "test_accuracy": accuracy(*test),
        "val_accuracy": accuracy(*val),
        **areas,
        "test_ece": ece(*test),
        "test_log_loss": log_loss(*test),
        "val_log_loss": log_loss(*val),
        "majority": float((test[0] == commonest).mean()),
    }


class _Clock:
    """Seconds between laps, with the GPU's work done."""

    def __init__(self, device: str):
        self._wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
        self.lap()

    def lap(self) -> float:
        self._wait()
        now = time.perf_counter()
        passed, self._start = now - getattr(self, "_start", now), now
        return round(passed, 3)
