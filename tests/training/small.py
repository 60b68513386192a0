"""Small graphs to train on, and settings that take a moment without anything at random but weights and batches."""

import examples
import numpy as np
import scipy.sparse as sp
import torch
from examples import train_model  # noqa: F401 (for the tests beside this file)

from nagphormer import Graph, NAGphormer, TrainConfig, from_scipy, random_split
from nagphormer.data.classes import Classes
from nagphormer.device import Machine
from nagphormer.model.classifier import weights_drawn
from nagphormer.model.embedding import Embedding
from nagphormer.settings import TokenSettings
from nagphormer.tokens.store import TokenStore
from nagphormer.training.batches import TokenSource
from nagphormer.training.loop import Trainer
from nagphormer.training.plan import Plan, decide
from nagphormer.training.sources import token_source
from nagphormer.training.task import Task

HERE = Machine("cpu", memory=10**10, gpu_memory=0, fast_bf16=False)
SETTINGS = examples.SETTINGS | {
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "final_lr": 0.001,
    "warmup_updates": 4,
    "decay_updates": 400,
    "weight_decay": 1e-5,
    "batch_size": 32,
    "patience": 100,
    "project_first": "never",
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
    """The network with weights drawn from the seed."""
    with weights_drawn(config.seed):
        return NAGphormer(plan_of(graph, config).model)


def plan_of(graph: Graph, config: TrainConfig, here: Machine = HERE, store: TokenStore | None = None) -> Plan:
    return decide(graph, config, here, store)


def source_of(graph: Graph, config: TrainConfig, device: str = "cpu", **parts) -> TokenSource:
    """Tokens as the settings ask for them."""
    way = "projected" if config.project_first == "always" else "stored"
    return token_source(graph, tokens_of(config), way, device, **parts)


def embedded(source: TokenSource, embedding: Embedding, *nodes: torch.Tensor) -> list[torch.Tensor]:
    """Embedded tokens of each batch: by a map of its own, as in training, or without gradients by one for all."""
    shared = None if torch.is_grad_enabled() else source.embedder(embedding)
    return [(shared or source.embedder(embedding))(batch) for batch in source.batches(nodes)]


def tokens_of(config: TrainConfig) -> TokenSettings:
    scaling = config.feature_scaling or "none"
    return TokenSettings(hops=config.hops, encoding_dim=config.encoding_dim, feature_scaling=scaling)


def make_trainer(graph: Graph, config: TrainConfig, source: TokenSource | None = None, **parts) -> Trainer:
    source = source or source_of(graph, config)
    task = Task(graph, Classes.of(graph), "cpu", config.class_weights)
    return Trainer(initial_network(graph, config), source, task, dict(graph.splits), config, **parts)


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether they are equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
