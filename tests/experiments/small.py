"""A small task that every method can learn: three communities whose features and edges tell the class."""

import numpy as np
import scipy.sparse as sp
import torch

from experiments.baselines.method import Method, Task
from nagphormer import from_scipy, random_split


def small_task(num_nodes=90, seed=0, num_features=12, inside=0.2, across=0.01):
    """Classes of equal size; edges mostly within a class; features of the class under much noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(num_nodes) % 3
    chance = np.where(labels[:, None] == labels, inside, across)
    upper = np.triu(rng.random((num_nodes, num_nodes)) < chance, 1)
    features = rng.normal(size=(num_nodes, num_features)).astype(np.float32)
    features[np.arange(num_nodes), labels] += 1.5
    graph = from_scipy(sp.csr_array(upper | upper.T, dtype=np.float32), features, labels)
    return Task(random_split(graph, seed=seed), seed=seed)


def dense_adjacency(task):
    """A as a dense float64 array."""
    return task.adjacency.toarray().astype(np.float64)


def train(method: Method, epochs: int) -> None:
    for _ in range(epochs):
        method.train()
        method.train_epoch()


def accuracy(method: Method, split: str = "test") -> float:
    """Share of a split's nodes that the method's inference gets right."""
    method.eval()
    nodes = method.task.splits[split]
    with torch.no_grad():
        found = method.infer()[nodes].argmax(dim=1)
    return (found == method.task.labels[nodes]).float().mean().item()
