"""What tokens take from the graph that a model is trained on, and bring to every graph it is used on.

Mean and deviation of a column, the order of columns and the meaning of eigenvectors are facts about the training graph.
Taken anew from another graph they would say something else: a subgraph has other means, and eigenvectors swap, turn and
change signs with a few edges. So a run keeps its own.

Shapes: N nodes of the training graph, M nodes of another, n nodes in both, F features, s eigenvectors
"""

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.folder import read_ids, write_ids
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_file
from nagphormer.progress import note
from nagphormer.settings import TokenSettings

ARRAYS, IDS = "fitted.safetensors", "fitted_ids.arrow"
SPARE = 5
"""Eigenvectors of another graph that are looked at beyond those wanted: where edges change, their order does."""
LEAST = 0.5
"""Agreement below which eigenvectors of another graph are refused; measured by benchmarks/drift.py."""
ENOUGH = 10
"""Common nodes for each vector that is turned: with fewer, vectors drawn at random would agree by more than `LEAST`."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """What the tokens of a training were made with."""

    graph: str
    """Fingerprint of the graph it is about."""
    feature_names: tuple[str, ...] | None = None
    mean: np.ndarray | None = None
    """Of every feature, (F,) float64, where columns are standardized."""
    std: np.ndarray | None = None
    """Deviation of every feature, (F,) float64."""
    encoding: np.ndarray | None = None
    """Eigenvectors, (N, s) float32, where there are any."""
    ids: Any = None
    """The nodes' ids as an Arrow array, by which those of another graph are found; None for 0 … N-1."""

    @classmethod
    def of(cls, graph: Graph, statistics: dict[str, list[float]], encoding: np.ndarray | None) -> "Fitted":
        """What tokens of a graph were made with."""
        mean, std = (np.array(statistics[name]) if statistics else None for name in ("mean", "std"))
        ids = None if encoding is None else graph.ids
        return cls(graph.fingerprint, graph.feature_names, mean, std, encoding, ids)

    @property
    def statistics(self) -> dict[str, list[float]]:
        """Mean and deviation, as a store's manifest has them."""
        return {} if self.mean is None or self.std is None else {"mean": self.mean.tolist(), "std": self.std.tolist()}

    @property
    def digest(self) -> str:
        """SHA-256 of mean, deviation and eigenvectors."""
        digest = hashlib.sha256()
        for array in (self.mean, self.std, self.encoding):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @classmethod
    def given(cls, thing: Any) -> "Fitted":
        """What a user gave: something trained, which has it, or the path of a run folder."""
        if isinstance(thing, cls):
            return thing
        if isinstance(thing, str | os.PathLike):
            return cls.read(Path(thing))
        found = getattr(thing, "fitted_", None)
        if not isinstance(found, cls):
            raise UserError(f"statistics= takes a fitted NodeClassifier or the folder of a run, not {thing!r}")
        return found

    def is_foreign(self, graph: Graph, tokens: TokenSettings) -> bool:
        """Whether tokens of a graph with these settings differ from those of its own statistics."""
        return tokens.fits and graph.fingerprint != self.graph

    def check_has(self, tokens: TokenSettings) -> None:
        """Refuse settings that need what was not measured in training."""
        if tokens.feature_scaling == "standardize" and self.mean is None:
            raise UserError("feature_scaling='standardize' was asked for, but the run was trained without it")
        dim = 0 if self.encoding is None else self.encoding.shape[1]
        if tokens.encoding_dim != dim:
            raise UserError(f"encoding_dim={tokens.encoding_dim} was asked for, but the run was trained with {dim}")

    def arranged(self, graph: Graph) -> Graph:
        """The graph with its features in the order of training; refuses others, by their names where both have any."""
        names, wanted = graph.feature_names, self.feature_names
        if names is None or wanted is None or names == wanted:
            return graph
        missing, new = (
            [name for name in these if name not in set(others)] for these, others in ((wanted, names), (names, wanted))
        )
        if missing or new:
            parts = [f"{word} {_listed(found)}" for word, found in (("lacks", missing), ("has besides", new)) if found]
            raise UserError(f"the graph {' and '.join(parts)}: the model was trained on the features {_listed(wanted)}")
        place = {name: column for column, name in enumerate(names)}
        note("features stand in another order than in training: they are matched by their names")
        order = np.array([place[name] for name in wanted])
        return replace(graph, features=graph.features[:, order], feature_names=wanted, folder=None)  # type: ignore[index]

    def encoding_of(self, graph: Graph, device: str | None) -> np.ndarray:
        """Eigenvectors that mean for a graph's nodes what training's did, (M, s) float32.

        For the graph of training its own. For another they are its first s + `SPARE` eigenvectors, turned by the
        rotation that brings them nearest to training's on the nodes both have (orthogonal Procrustes), each scaled to
        the same length there. Refused where they do not agree: then the model would be guessing.
        """
        assert self.encoding is not None
        if graph.fingerprint == self.graph:
            return self.encoding
        from nagphormer.tokens.laplacian import solve

        dim = self.encoding.shape[1]
        here, there = self._common(graph, dim + SPARE)
        wanted = np.asarray(self.encoding, np.float64)[there]  # (n, s)
        found = solve(graph, dim + SPARE, device=device).vectors  # (M, s + SPARE)
        left, _, right = np.linalg.svd(found[here].T @ wanted, full_matrices=False)
        turned = found @ (left @ right)  # (M, s)
        lengths, reached = (np.linalg.norm(each, axis=0) for each in (wanted, turned[here]))
        turned *= np.divide(lengths, reached, out=np.zeros_like(lengths), where=reached > 0)
        agreed = agreement(wanted, turned[here])
        by = f"by {agreed:.2f} on {len(here):,} common nodes"
        if agreed < LEAST:
            raise UserError(
                f"the eigenvectors of this graph agree with those of training {by}, below {LEAST}: the model cannot "
                f"know what they mean; train it on this graph, or with encoding_dim=0, which moves to any graph"
            )
        note(f"eigenvectors are turned to those of training; they agree {by}")
        return turned.astype(np.float32)

    def refuse_other(
        self, graph: Graph, statistics: dict[str, list[float]], encoding: np.ndarray | None, where: str
    ) -> None:
        """Refuse tokens of a graph, which lie `where`, that were made with another mean, deviation or eigenvectors."""
        mend = "make them with nagphormer prepare --statistics RUN, or hop_tokens(…, statistics=…)"
        if self.mean is not None and self.std is not None:
            same = statistics and all(
                np.allclose(statistics[name], mine, rtol=1e-6, atol=1e-12)
                for name, mine in (("mean", self.mean), ("std", self.std))
            )
            if not same:
                raise UserError(f"{where} tokens standardized by another mean and deviation than training's: {mend}")
        if self.encoding is None or encoding is None:
            return
        here, there = self._common(graph, self.encoding.shape[1])
        agreed = agreement(np.asarray(self.encoding)[there], np.asarray(encoding)[here])
        if agreed < LEAST:
            raise UserError(
                f"{where} eigenvectors that agree with training's by {agreed:.2f} only, below {LEAST}: {mend}"
            )

    def _common(self, graph: Graph, num_vectors: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions, in the other graph and in training's, of the nodes both have, (n,) each.

        Refused where they are too few to say what so many eigenvectors mean.
        """
        here, there = self._matched(graph)
        if len(here) < ENOUGH * num_vectors:
            raise UserError(
                f"this graph has {len(here):,} nodes in common with that of training, and eigenvectors need "
                f"{ENOUGH * num_vectors:,} to be compared: the model cannot know what they mean; train with "
                f"encoding_dim=0, which moves to any graph"
            )
        return here, there

    def _matched(self, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
        """The nodes both have, matched by their ids."""
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.encoding is not None
        if self.ids is None and graph.ids is None:
            both = np.arange(min(len(self.encoding), graph.num_nodes))
            return both, both
        mine = pa.array(np.arange(len(self.encoding))) if self.ids is None else self.ids
        theirs = pa.array(np.arange(graph.num_nodes)) if graph.ids is None else graph.ids
        if mine.type != theirs.type:
            mine, theirs = mine.cast(pa.large_string()), theirs.cast(pa.large_string())
        place = pc.index_in(theirs, value_set=mine)
        here = np.flatnonzero(pc.is_valid(place).to_numpy(zero_copy_only=False))
        return here, pc.drop_null(place).to_numpy(zero_copy_only=False).astype(np.int64)

    def write(self, folder: Path) -> None:
        """Write it into a run folder."""
        from safetensors.numpy import save_file

        arrays = {name: getattr(self, name) for name in ("mean", "std", "encoding")}
        facts = {"graph": self.graph, "feature_names": json.dumps(self.feature_names, ensure_ascii=False)}
        with new_file(folder / ARRAYS) as staging:
            held = {name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}
            save_file(held, staging, metadata=facts)
        if self.ids is not None:
            with new_file(folder / IDS) as staging:
                write_ids(staging, self.ids)

    @classmethod
    def read(cls, folder: Path) -> "Fitted":
        """What `write` wrote into a run folder."""
        from safetensors import SafetensorError, safe_open

        if not (folder / ARRAYS).is_file():
            raise UserError(f"{folder} is no run with statistics of its own: it lacks {ARRAYS}")
        try:
            with safe_open(folder / ARRAYS, framework="numpy") as file:
                facts, held = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            names = json.loads(facts["feature_names"])
            arrays = {name: held.get(name) for name in ("mean", "std", "encoding")}
            ids = read_ids(folder / IDS) if (folder / IDS).is_file() else None
            return cls(facts["graph"], names and tuple(names), **arrays, ids=ids)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{folder / ARRAYS} is damaged ({error}): train again") from error


def agreement(wanted: np.ndarray, found: np.ndarray) -> float:
    """The mean cosine between columns that belong together, (n, s) each; columns of zeros say nothing.

    The mean, and not the smallest: one eigenvector of many that lives on a few nodes is lost with a single edge, and a
    model misses little with it.
    """
    lengths = np.linalg.norm(wanted, axis=0) * np.linalg.norm(found, axis=0)
    cosines = (np.asarray(wanted, np.float64) * found).sum(axis=0) / np.where(lengths > 0, lengths, 1)
    asked = np.linalg.norm(wanted, axis=0) > 0
    return float(cosines[asked].mean()) if asked.any() else 1.0


def _listed(names: Any) -> str:
    shown = ", ".join(map(repr, list(names)[:10]))
    return shown + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
