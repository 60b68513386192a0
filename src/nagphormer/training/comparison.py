"""The two plain models, trained like the network, so that its accuracy can be judged."""

from dataclasses import replace
from itertools import product
from typing import Any

from nagphormer.data.graph import Graph
from nagphormer.device import machine
from nagphormer.errors import UserError
from nagphormer.model.classifier import Classifier, weights_drawn
from nagphormer.model.plain import MLP, LogisticRegression
from nagphormer.settings import TrainConfig
from nagphormer.training.batches import TokenSource
from nagphormer.training.loop import Trainer, evaluate
from nagphormer.training.plan import check_trainable, choose_tokens, choose_way
from nagphormer.training.sources import token_source
from nagphormer.training.task import Task

RATES = {MLP: (0.01,), LogisticRegression: (0.01, 0.1)}
WEIGHT_DECAYS = (0.001, 0.1)
"""All tried; the best on the validation nodes counts. A linear model of few columns needs the higher rate."""
PLAIN: dict[str, Any] = {
    "network": "transformer",
    "own_maps": False,
    "label_hops": 0,
    "edge_copies": 0,
    "linear": False,
}
"""What else a setting says is of the network that is compared with."""
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
    return _best(MLP, graph, replace(config, hops=0, encoding_dim=0), None, split)


def logistic_accuracy(
    graph: Graph, config: TrainConfig, source: TokenSource | None = None, split: str = "test"
) -> float:
    """Accuracy of logistic regression on tokens: those given, or of as many hops with features that are not reduced."""
    return _best(LogisticRegression, graph, config, source, split)


def _best(
    kind: type[MLP | LogisticRegression], graph: Graph, config: TrainConfig, source: TokenSource | None, split: str
) -> float:
    """Accuracy on `split` of the settings that are best on the validation nodes."""
    classes, here = check_trainable(graph), machine(config.device)
    plain = replace(config, **PLAIN | COMMON)
    if source is None:
        plain = replace(plain, reduce_dim=0)
        tokens = choose_tokens(graph, plain)
        source = token_source(graph, tokens, choose_way(graph, plain, tokens, here), here.device)
    task = Task(graph, classes, here.device, config.class_weights)
    found = []
    for lr, weight_decay in product(RATES[kind], WEIGHT_DECAYS):
        with weights_drawn(config.seed):
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
