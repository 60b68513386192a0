"""Labels as tokens: what the training nodes around a node are, averaged over 1 … L hops of Â.

No node ever reads its own label, directly or back through a loop. Training nodes are dealt into parts; those of a part
read what the others alone have spread, so that not one of their own labels is in it, after any number of hops. All
other nodes read what all training nodes have spread. Labels of validation and test nodes are not looked at.

Shapes: N nodes, n training nodes, L hops, C classes, R rounds of dealing
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.folder import read_ids, write_ids
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_file
from nagphormer.progress import note, stage
from nagphormer.tokens.engine import LANES, engine
from nagphormer.tokens.normalization import loop_degrees

LABELS, LABEL_IDS = "labels.safetensors", "label_ids.arrow"
LEAST = 0.5
"""Share of the training nodes that another graph must have for their labels to be read there."""
ROUNDS, PARTS = 4, 2
"""Dealings of the training nodes, one an epoch in turn, and parts of each: half of the labels are read by the rest."""


@dataclass(frozen=True, eq=False)
class Shown:
    """The labels that a model reads: those of its training nodes."""

    nodes: np.ndarray
    """Positions in the graph of training, (n,)."""
    labels: np.ndarray
    """Classes, (n,), or 0 and 1 of each label, (n, C)."""
    ids: Any = None
    """The nodes' ids as an Arrow array, by which they are found in another graph; None for their positions."""

    @classmethod
    def of(cls, graph: Graph) -> "Shown":
        """Those of a graph that is trained on."""
        assert graph.labels is not None
        nodes = np.asarray(graph.splits["train"])
        return cls(nodes, np.asarray(graph.labels)[nodes], None if graph.ids is None else graph.ids.take(nodes))

    def in_graph(self, graph: Graph, same: bool) -> tuple[np.ndarray, np.ndarray]:
        """Positions and labels of those training nodes that a graph has; refuses one with few of them.

        Args:
            graph: the graph.
            same: whether it is that of training.
        """
        if same:
            return self.nodes, self.labels
        here, there = self._matched(graph)
        if not self.known_in(graph):
            raise UserError(
                f"the model reads labels of training nodes, and this graph has {len(here):,} of the "
                f"{len(self.nodes):,}: train with label_hops=0 for a model that moves to any graph"
            )
        note(f"labels of {len(here):,} of the {len(self.nodes):,} training nodes are read in this graph")
        return here, self.labels[there]

    def known_in(self, graph: Graph) -> bool:
        """Whether another graph has enough of the nodes."""
        return len(self._matched(graph)[0]) >= LEAST * len(self.nodes)

    def _matched(self, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
        """Positions in another graph and among the training nodes, by ids, else by positions."""
        import pyarrow as pa
        import pyarrow.compute as pc

        mine = pa.array(self.nodes) if self.ids is None else self.ids
        theirs = pa.array(np.arange(graph.num_nodes)) if graph.ids is None else graph.ids
        if mine.type != theirs.type:
            mine, theirs = mine.cast(pa.large_string()), theirs.cast(pa.large_string())
        place = pc.index_in(mine, value_set=theirs)
        there = np.flatnonzero(pc.is_valid(place).to_numpy(zero_copy_only=False))
        return pc.drop_null(place).to_numpy(zero_copy_only=False).astype(np.int64), there

    def write(self, folder: Path) -> None:
        """Write them into a run folder."""
        from safetensors.numpy import save_file

        with new_file(folder / LABELS) as staging:
            arrays = {"nodes": self.nodes, "labels": self.labels}
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, staging)
        if self.ids is not None:
            with new_file(folder / LABEL_IDS) as staging:
                write_ids(staging, self.ids)

    @classmethod
    def read(cls, folder: Path) -> "Shown | None":
        """What a run folder holds, if it does."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        if not (folder / LABELS).is_file():
            return None
        try:
            found = load_file(folder / LABELS)
            ids = read_ids(folder / LABEL_IDS) if (folder / LABEL_IDS).is_file() else None
            shown = cls(found["nodes"], found["labels"], ids)
            if not len(shown.nodes) == len(shown.labels) == len(shown.nodes if ids is None else ids):
                raise ValueError("nodes, labels and ids are not as many")
            return shown
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise UserError(f"{folder / LABELS} or the ids beside it are damaged ({error}): train again") from error


@dataclass(frozen=True, eq=False)
class LabelTokens:
    """Tokens of labels: of all nodes as they are used, and of training nodes as they are trained on."""

    whole: np.ndarray
    """(N, L, C) float16. A training node has the mean of its rounds, in none of which its own label was spread."""
    rounds: np.ndarray
    """(R, n, L, C) float16, of training nodes alone."""
    place: np.ndarray
    """Row of a training node in `rounds`, (N,) int64; 0 for others, which no epoch of training asks for."""


def label_bytes(num_nodes: int, num_train: int, num_classes: int, hops: int) -> int:
    """Bytes that tokens of labels take, which lie in memory as a whole, and what is beside them while they are made."""
    kept = 2 * (num_nodes + ROUNDS * num_train) * hops * num_classes
    return kept + 4 * num_nodes * (2 * LANES + hops) if hops else 0


def label_tokens(
    graph: Graph, nodes: np.ndarray, labels: np.ndarray, num_classes: int, hops: int, seed: int
) -> LabelTokens:
    """Tokens of labels for a graph.

    Args:
        graph: the graph, whose own labels are not looked at.
        nodes: the training nodes, (n,).
        labels: their classes, (n,), or 0 and 1 of each label, (n, C).
        num_classes: C.
        hops: L.
        seed: of dealing the training nodes.
    """
    spread = _Spread(graph, num_classes, hops)
    draw = np.random.default_rng([seed, 1])
    rounds = np.zeros((ROUNDS, len(nodes), hops, num_classes), np.float16)
    with stage(f"labels over {hops} hops", total=1 + ROUNDS * PARTS) as advance:
        for own in rounds:
            dealt = draw.permutation(len(nodes))
            for part in range(PARTS):
                reading = np.sort(dealt[part::PARTS])
                showing = np.setdiff1d(dealt, reading)
                for hop, first, shares in spread(nodes[showing], labels[showing]):
                    own[reading, hop, first : first + shares.shape[1]] = shares[nodes[reading]]
                advance(1)
        whole = np.empty((graph.num_nodes, hops, num_classes), np.float16)
        for hop, first, shares in spread(nodes, labels):
            whole[:, hop, first : first + shares.shape[1]] = shares
        advance(1)
    whole[nodes] = rounds.mean(axis=0, dtype=np.float32)
    place = np.zeros(graph.num_nodes, np.int64)
    place[nodes] = np.arange(len(nodes))
    return LabelTokens(whole, rounds, place)


class _Spread:
    """Labels of some nodes over the hops of a graph, some classes at a time: memory for a few columns is enough."""

    def __init__(self, graph: Graph, num_classes: int, hops: int):
        degrees = loop_degrees(graph)
        self._root = np.sqrt(degrees).astype(np.float32)
        self._average = engine("cpu").NeighborSum(graph, 1 / degrees, loop=True)  # D̃^-1 (A+I)
        self.num_nodes, self.num_classes, self.hops = graph.num_nodes, num_classes, hops

    def __call__(self, nodes: np.ndarray, labels: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
        """Hop (from 0 for the first), first class, and the classes' shares of the labels that arrive there, (N, W)."""
        reached = [mass[:, :1].copy() for mass in self._hops(nodes, np.ones((len(nodes), 1), np.float32))]
        for first in range(0, self.num_classes, LANES):
            count = min(LANES, self.num_classes - first)
            for hop, found in enumerate(self._hops(nodes, self._columns(labels, first, count))):
                whole = reached[hop]  # (N, 1): where no label arrives, shares are zero
                yield hop, first, found[:, :count] / np.where(whole > 0, whole, 1)

    def _columns(self, labels: np.ndarray, first: int, count: int) -> np.ndarray:
        """Labels as 0 and 1 of some classes, (n, W)."""
        if labels.ndim == 2:
            return labels[:, first : first + count].astype(np.float32)
        return (labels[:, None] == np.arange(first, first + count)).astype(np.float32)

    def _hops(self, nodes: np.ndarray, values: np.ndarray) -> Iterator[np.ndarray]:
        """D̃^-½ times the values after 1 … L hops, (N, LANES) each; overwritten by the one after the next."""
        here, there = (np.zeros((self.num_nodes, LANES), np.float32) for _ in range(2))
        here[nodes, : values.shape[1]] = values / self._root[nodes, None]
        for _ in range(self.hops):
            self._average(here, there)
            here, there = there, here
            yield here
