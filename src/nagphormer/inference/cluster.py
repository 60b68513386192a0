"""Predictions of all nodes as Ray tasks: each a range of nodes, and a file of a Parquet data set."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nagphormer.data.folder import open_graph
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_folder
from nagphormer.inference.predict import fitting, open_sources, store_of, usable
from nagphormer.inference.table import write_predictions
from nagphormer.tokens.cluster import INTERPRETER, check_shared, connected, gather, workers
from nagphormer.tokens.store import TokenStore
from nagphormer.training.ensemble import Trained, runs_of
from nagphormer.training.ensemble_folder import load_trained
from nagphormer.training.run import Run
from nagphormer.training.sources import check_store

PART_ROWS = 1 << 18
"""Nodes of one task, and of one file."""
TASK_BYTES = INTERPRETER + 10**9
"""Memory that a task asks for: the interpreter, the network, and a few thousand nodes at a time."""


@dataclass(frozen=True)
class Parts:
    """What a worker needs to know to predict any range of nodes."""

    run: str
    graph: str
    tokens: str | None
    """The token store that was given; by default each member finds its own."""
    folder: str

    def write(self, number: int) -> int:
        """Predict one range and write its file; gives how many nodes that are. Runs in a worker."""
        run = load_trained(self.run)
        graph = fitting(run, open_graph(self.graph))
        run = usable(run, graph)
        source = open_sources(run, graph, "cpu", None if self.tokens is None else Path(self.tokens), Path(self.run))
        nodes = np.arange(number * PART_ROWS, min((number + 1) * PART_ROWS, graph.num_nodes))
        write_predictions(run, source, graph, Path(self.folder) / f"part-{number:05d}.parquet", nodes)
        return len(nodes)


def write_data_set(
    run: Trained, place: Path, graph: Graph, out: Path, address: str, tokens: Path | None = None
) -> None:
    """Have the workers of a cluster predict every node.

    Args:
        run: the model, to check that it fits.
        place: its folder.
        graph: opened from a folder.
        out: folder of the Parquet data set. All three lie where all workers see them, and so do the tokens.
        address: of the cluster, or `local` to start one here.
        tokens: the graph's token store; by default that of training, or one in the cache or beside the run.
    """
    shared = check_shared(graph)
    graph = fitting(run, graph)
    run = usable(run, graph)
    for each in runs_of(run):
        store = tokens or store_of(each, graph, place)
        if store is None:
            raise UserError(
                "a cluster predicts from a token store, and there is none for this run and graph: make one with "
                "nagphormer prepare and give it with --tokens"
            )
        check_store(TokenStore.open(store), graph, each.best.plan.tokens, each.fitted)
    given = tokens or (store if isinstance(run, Run) else None)  # each of several members finds its own
    count = -(-graph.num_nodes // PART_ROWS)
    with new_folder(out) as folder, connected(address) as ray:
        run_path, graph_path, folder_path = (str(Path(path).absolute()) for path in (place, shared, folder))
        parts = Parts(run_path, graph_path, None if given is None else str(given.absolute()), folder_path)
        memory = min(TASK_BYTES, max(worker.memory for worker in workers(ray)))
        gather(ray, parts, count, cpus=1, memory=memory, work="predicting on the cluster")
