"""One method on one graph: prepared, trained, and asked for every node.

Every method gets the same splits and the same rule for stopping; test labels are read once, after training.

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
from nagphormer import Graph, NodeClassifier
from nagphormer.training.comparison import logistic_accuracy, mlp_accuracy
from nagphormer.training.stopping import EarlyStopping


@dataclass(frozen=True)
class Budget:
    """How long every method may train: the same for all."""

    epochs: int = 3000
    patience: int = 100
    """Epochs without a better validation accuracy or loss."""
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
    stopping = _train(method, budget)
    trained = clock.lap()
    with torch.no_grad():
        scores = method.eval().infer()
    inferred = clock.lap()
    return {
        **_accuracies(graph, scores.argmax(dim=1).cpu().numpy()),
        "val_loss": stopping["best_loss"],
        "best_epoch": stopping["best_epoch"],
        "epochs": stopping["epochs"],
        "stages": {"prepare": prepared, "train": trained, "infer": inferred},
        "parameters": sum(weight.numel() for weight in method.parameters()),
    }


def _train(method: Method, budget: Budget) -> dict[str, Any]:
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
            scores = method.logits(nodes)
            loss = nn.functional.cross_entropy(scores, labels[nodes])
            accuracy = (scores.argmax(dim=1) == labels[nodes]).float().mean()
        numbers = torch.stack([accuracy, loss]).tolist()  # both at once: reading a number waits for the GPU
        if not np.isfinite(numbers[1]):
            raise FloatingPointError(f"the validation loss became {numbers[1]} in epoch {epoch}")
        method.validated(numbers[1])
        if stopping.update(epoch, *numbers):
            best = {name: tensor.detach().clone() for name, tensor in method.state_dict().items()}
        if epoch <= method.patience_from:
            stopping.idle = 0
    method.load_state_dict(best)
    return {"best_epoch": stopping.best_epoch, "best_loss": stopping.best_loss, "epochs": epoch}


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


def _estimator(settings: Settings, seed: int, device: str, budget: Budget) -> NodeClassifier:
    return NodeClassifier(**(asdict(budget) | settings), seed=seed, device=device)


def _measure_estimator(classifier: NodeClassifier, graph: Graph, device: str) -> dict[str, Any]:
    """Everything but the epochs counts as preparation."""
    clock = _Clock(device)
    classifier.fit(graph)
    fitted = clock.lap()
    scores = classifier.predict_proba(graph)
    inferred = clock.lap()
    trained = round(sum(record["seconds"] for record in classifier.history_), 3)
    return {
        **_accuracies(graph, scores.argmax(axis=1)),
        "val_loss": classifier.history_[classifier.best_epoch_ - 1]["val_loss"],
        "best_epoch": classifier.best_epoch_,
        "epochs": len(classifier.history_),
        "stages": {"prepare": round(fitted - trained, 3), "train": trained, "infer": inferred},
        "parameters": sum(weight.numel() for weight in classifier.model_.parameters()),
    }


def _accuracies(graph: Graph, found: np.ndarray) -> dict[str, float]:
    """Accuracy on validation and test nodes, and what naming the commonest training class would give."""
    labels = np.asarray(graph.labels)
    commonest = np.bincount(labels[graph.splits["train"]]).argmax()
    val, test = (graph.splits[name] for name in ("val", "test"))
    return {
        "test_accuracy": float((found[test] == labels[test]).mean()),
        "val_accuracy": float((found[val] == labels[val]).mean()),
        "majority": float((labels[test] == commonest).mean()),
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
