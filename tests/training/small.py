"""Small graphs to train on, and settings that take a moment; none is left to its default."""

import numpy as np
import scipy.sparse as sp
import torch

from nagphormer import Graph, NAGphormer, TrainConfig, from_scipy, random_split
from nagphormer.training.loop import Trainer
from nagphormer.training.run import network
from nagphormer.training.source import token_source
from nagphormer.training.sources import TokenSource
from nagphormer.training.task import Classes, Task

SETTINGS = {
    "hidden_dim": 16,
    "num_layers": 1,
    "num_heads": 2,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "feature_dropout": 0.0,
    "readout": "attention",
    "linear": True,
    "hops": 2,
    "encoding_dim": 0,
    "feature_scaling": "none",
    "lr": 0.01,
    "final_lr": 0.001,
    "warmup_updates": 4,
    "decay_updates": 400,
    "weight_decay": 1e-5,
    "clip_norm": 0.0,
    "class_weights": "none",
    "batch_size": 32,
    "epochs": 4,
    "patience": 100,
    "averaging": 0.85,
    "precision": "fp32",
    "project_first": "never",
    "device": "cpu",
    "seed": 0,
}


def quick(**changes) -> TrainConfig:
    return TrainConfig(**(SETTINGS | changes))


def class_graph(num_nodes: int = 150, num_classes: int = 3, noise: float = 0.7, sparse: bool = False) -> Graph:
    """Edges stay within a class and features are its one-hot vector with noise, so hops make it plain."""
    rng = np.random.default_rng(0)
    labels = np.arange(num_nodes) % num_classes
    source = rng.integers(0, num_nodes, 3 * num_nodes)
    target = (source + num_classes * rng.integers(1, num_nodes // num_classes, len(source))) % num_nodes
    within = labels[source] == labels[target]
    ends = (source[within], target[within])
    features = np.eye(num_classes, 8)[labels] + noise * rng.standard_normal((num_nodes, 8))
    if sparse:
        features = sp.csr_array(np.where(np.abs(features) > 0.5, features, 0))
    adjacency = sp.coo_array((np.ones(within.sum(), bool), ends), shape=(num_nodes, num_nodes))
    return random_split(from_scipy(adjacency, features, labels))


def sparse_graph(num_nodes: int = 50, num_features: int = 23, weighted: bool = True, seed: int = 0) -> Graph:
    """Random edges and sparse features; the last five nodes are isolated, one row and one column are empty."""
    rng = np.random.default_rng(seed)
    ends = tuple(rng.integers(0, num_nodes - 5, (2, 3 * num_nodes)))
    weights = rng.uniform(0.1, 5, 3 * num_nodes) if weighted else np.ones(3 * num_nodes, bool)
    features = (rng.random((num_nodes, num_features)) < 0.2) * rng.normal(1, 1, (num_nodes, num_features))
    features[7] = features[:, 3] = 0
    adjacency = sp.coo_array((weights, ends), shape=(num_nodes, num_nodes))
    labels = (features[:, :4].sum(axis=1) > 0.8).astype(int)
    return random_split(from_scipy(adjacency, sp.csr_array(features.astype(np.float32)), labels))


def initial_network(graph: Graph, config: TrainConfig) -> NAGphormer:
    """The network with weights drawn from the seed; torch's own random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return network(config, graph.num_features + config.encoding_dim, Classes.of(graph))


def make_trainer(graph: Graph, config: TrainConfig, source: TokenSource | None = None, **parts) -> Trainer:
    source = source or token_source(graph, config, "cpu")
    task = Task(graph, Classes.of(graph), "cpu", config.class_weights)
    return Trainer(initial_network(graph, config), source, task, dict(graph.splits), config, **parts)


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether they are equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
