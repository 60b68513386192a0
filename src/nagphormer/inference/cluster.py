"""Predictions of all nodes as Ray tasks: each a range of nodes, and a file of a Parquet data set."""

from dataclasses import dataclass
from pathlib import Path

from nagphormer.data.folder import open_graph
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_folder
from nagphormer.inference.predict import check_fits, open_source, tokens_of_training, write_predictions
from nagphormer.tokens.cluster import INTERPRETER, connected, gather, workers
from nagphormer.tokens.store import MANIFEST, TokenStore
from nagphormer.training.run import Trained, load_run
from nagphormer.training.source import check_store, tokens_folder

PART_ROWS = 1 << 18
"""Nodes of one task, and of one file."""
TASK_BYTES = INTERPRETER + 10**9
"""Memory that a task asks for: the interpreter, the network, and a few thousand nodes at a time."""


@dataclass(frozen=True)
class Parts:
    """What a worker needs to know to predict any range of nodes."""

    run: str
    graph: str
    tokens: str
    folder: str

    def write(self, number: int) -> int:
        """Predict one range and write its file; gives how many nodes that are. Runs in a worker."""
        trained, graph = load_run(self.run), open_graph(self.graph)
        source = open_source(trained, graph, "cpu", Path(self.tokens))
        rows = (number * PART_ROWS, min((number + 1) * PART_ROWS, graph.num_nodes))
        write_predictions(trained, source, graph, Path(self.folder) / f"part-{number:05d}.parquet", rows)
        return rows[1] - rows[0]


def write_data_set(
    trained: Trained, run: Path, graph: Graph, out: Path, address: str, tokens: Path | None = None
) -> None:
    """Have the workers of a cluster predict every node.

    Args:
        trained: the model, to check that it fits.
        run: its folder.
        graph: opened from a folder.
        out: folder of the Parquet data set. All three lie where all workers see them, and so do the tokens.
        address: of the cluster, or `local` to start one here.
        tokens: the graph's token store; by default that of training.
    """
    check_fits(trained, graph)
    if graph.folder is None:
        raise UserError("a cluster needs a graph folder that all workers can open: write one with graph.save(FOLDER)")
    beside = tokens_folder(run, graph, trained.config)
    tokens = tokens or tokens_of_training(trained, graph, run) or (beside if (beside / MANIFEST).is_file() else None)
    if tokens is None:
        raise UserError(
            "a cluster predicts from a token store, and there is none for this run and graph: make one with "
            "nagphormer prepare and give it with --tokens"
        )
    check_store(TokenStore.open(tokens), graph, trained.config)
    count = -(-graph.num_nodes // PART_ROWS)
    with new_folder(out) as folder, connected(address) as ray:
        paths = (str(Path(path).absolute()) for path in (run, graph.folder, tokens, folder))
        memory = min(TASK_BYTES, max(worker.memory for worker in workers(ray)))
        gather(ray, Parts(*paths), count, cpus=1, memory=memory, work="predicting on the cluster")
