"""The two plain models, trained like the network, so that its accuracy can be judged."""

from dataclasses import replace
from itertools import product
from typing import Any

import torch

from nagphormer.data.graph import Graph
from nagphormer.device import resolve_device
from nagphormer.errors import UserError
from nagphormer.model.classifier import Classifier
from nagphormer.model.plain import MLP, LogisticRegression
from nagphormer.settings import TrainConfig
from nagphormer.training.loop import Trainer, evaluate
from nagphormer.training.source import projection_pays, token_source
from nagphormer.training.sources import TokenSource
from nagphormer.training.task import Classes, Task, check_trainable

RATES = {MLP: (0.01,), LogisticRegression: (0.01, 0.1)}
WEIGHT_DECAYS = (0.001, 0.1)
"""All tried; the best on the validation nodes counts. A linear model of few columns needs the higher rate."""
COMMON: dict[str, Any] = {
    "warmup_updates": 0,
    "decay_updates": 10**9,
    "batch_size": 10_000,
    "epochs": 500,
    "patience": 50,
    "averaging": 0.0,
    "precision": "fp32",
}


def mlp_accuracy(graph: Graph, config: TrainConfig, split: str = "test") -> float:
    """Accuracy of an MLP on the nodes' own features, without the graph."""
    config = replace(config, hops=0, encoding_dim=0, linear=False)
    return _best(graph, config, None, split)


def logistic_accuracy(graph: Graph, config: TrainConfig, source: TokenSource, split: str = "test") -> float:
    """Accuracy of logistic regression on the same tokens that the network reads."""
    return _best(graph, config, source, split)


def _best(graph: Graph, config: TrainConfig, source: TokenSource | None, split: str) -> float:
    """Accuracy on `split` of the settings that are best on the validation nodes."""
    check_trainable(graph)
    device = resolve_device(config.device)
    classes = Classes.of(graph)
    plain = replace(config, **COMMON)
    kind = MLP if source is None else LogisticRegression
    if source is None:
        plain = replace(plain, project_first="always" if projection_pays(graph, plain, device) else "never")
        source = token_source(graph, plain, device)
    task = Task(graph, classes, device, config.class_weights)
    found = []
    for lr, weight_decay in product(RATES[kind], WEIGHT_DECAYS):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(config.seed)
            if kind is LogisticRegression:
                model: Classifier = LogisticRegression(source.width, classes.num_classes, source.hops)
            else:
                model = MLP(source.width, classes.num_classes)
        settings = replace(plain, lr=lr, weight_decay=weight_decay)
        outcome = Trainer(model, source, task, dict(graph.splits), settings).run()
        _, metric = evaluate(model, source, task, graph.splits[split], plain.precision)
        if outcome.best_metric is not None and outcome.best_loss is not None:
            found.append((outcome.best_metric, -outcome.best_loss, metric))
    if not found:
        raise UserError(f"{kind.__name__} diverged with every setting: are the features very large? Scale them first")
    return max(found)[2]
