"""A small graph with names of its own, and settings that train on it in a moment."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import yaml

from nagphormer import Graph, TokenStore, TrainConfig, from_scipy, random_split, synthetic_graph
from nagphormer.device import Machine, machine
from nagphormer.training.batches import TokenSource
from nagphormer.training.plan import decide
from nagphormer.training.run import Run, train
from nagphormer.training.run_folder import RunFolder

NAMES = ("ash", "birch", "cedar", "date")
SETTINGS = {
    "network": "transformer",
    "own_maps": False,
    "token_dropout": 0.0,
    "reduce_dim": 0,
    "label_hops": 0,
    "edge_copies": 0,
    "label_smoothing": 0.0,
    "feature_scaling": "none",
    "hidden_dim": 16,
    "num_layers": 1,
    "num_heads": 2,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "feature_dropout": 0.0,
    "readout": "attention",
    "linear": True,
    "hops": 2,
    "encoding_dim": 0,
    "lr": 0.01,
    "final_lr": 0.01,
    "warmup_updates": 2,
    "decay_updates": 100,
    "weight_decay": 0.01,
    "clip_norm": 0.0,
    "class_weights": "none",
    "batch_size": 50,
    "epochs": 4,
    "patience": 50,
    "averaging": 0.85,
    "precision": "fp32",
    "project_first": "auto",
    "device": "cpu",
    "seed": 0,
}
"""None is left to its default."""
MEMBERS = {
    "copies": {"edge_copies": 2},
    "labels": {"label_hops": 2},
    "paper": {"network": "transformer", "readout": "attention"},
    "flat": {"network": "linear", "hops": 0},
}
"""Members of a recipe, of every kind."""


def named_graph(seed=0, num_classes=3, num_features=8, sparse=False, split=True, name="small"):
    """120 nodes `node-0`, `node-1` … of the classes ash, birch, cedar …, split 60/20/20 unless told otherwise."""
    drawn = synthetic_graph(120, 360, num_features, num_classes, seed=seed)
    graph = from_scipy(
        drawn.adjacency(),
        sp.csr_array(np.maximum(drawn.features, 0)) if sparse else drawn.features,
        drawn.labels,
        node_ids=[f"node-{number}" for number in range(drawn.num_nodes)],
        class_names=NAMES[:num_classes],
        name=name,
    )
    return random_split(graph) if split else graph


def multi_label_graph():
    """The same nodes, each with any of three labels."""
    graph = named_graph()
    labels = np.stack([graph.labels == 0, graph.labels != 1, graph.degrees > 5], axis=1)
    return random_split(
        from_scipy(graph.adjacency(), graph.features, labels, node_ids=graph.ids, class_names=graph.class_names)
    )


def write_recipe(folder, members=MEMBERS, **changes):
    """A recipe of several members that train in a moment; gives its path as text."""
    common = SETTINGS | {"network": "mlp", "linear": False} | changes
    (folder / "mine.yaml").write_text(yaml.safe_dump(common | {"members": members}, sort_keys=False))
    return str(folder / "mine.yaml")


def train_model(
    graph: Graph,
    config: TrainConfig,
    store: TokenStore | None = None,
    folder: Path | None = None,
    here: Machine | None = None,
    **parts,
) -> tuple[Run, TokenSource]:
    """Decide and train; a run that was begun in the folder goes on."""
    here = here or machine(config.device)
    taken = None if folder is None else RunFolder.take(folder, resume=True)
    return train(graph, decide(graph, config, here, store, taken and taken.begun), here, store, taken, **parts)
