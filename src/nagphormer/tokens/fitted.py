"""What tokens take from the graph that a model is trained on, and bring to every graph it is used on.

Mean and deviation of a column, the order of columns and the meaning of eigenvectors are facts about the training graph.
Taken anew from another graph they would say something else: a subgraph has other means, and eigenvectors swap, turn and
change signs with a few edges. So a run keeps its own.

Shapes: N nodes of the training graph, M nodes of another, n nodes in both, F features, s eigenvectors
"""

import hashlib
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.folder import read_ids, write_ids
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_file, read_json
from nagphormer.progress import note
from nagphormer.settings import Scaling, TokenSettings
from nagphormer.tokens.store import StoreManifest

RUN_FORMAT = 2
"""Of runs that keep this: 0.1.0 would measure anew."""
ENCODING, IDS, REDUCTION = "encoding.safetensors", "encoding_ids.arrow", "reduction.safetensors"
SPARE = 5
"""Eigenvectors of another graph that are looked at beyond those wanted, and of its parts: where edges change, their
order does, and what told two parts from each other has eigenvalue 0 where they have come apart."""
LEAST = 0.5
"""Agreement below which eigenvectors of another graph are refused; measured by benchmarks/drift.py."""
ENOUGH = 10
"""Common nodes for each vector that is turned: with fewer, vectors drawn at random would agree by more than `LEAST`."""
MEND = "make them with nagphormer prepare --statistics RUN, or hop_tokens(…, statistics=…)"


@dataclass(frozen=True, eq=False)
class Fitted:
    """What the tokens of a training were made with."""

    graph: str
    """Fingerprint of the graph it is about."""
    feature_scaling: Scaling
    num_features: int
    """F; 0 where the graph had none, and its degrees stood for them."""
    encoding_dim: int
    """s."""
    feature_names: tuple[str, ...] | None = None
    mean: np.ndarray | None = None
    """Of every feature, (F,) float64, where columns are standardized."""
    std: np.ndarray | None = None
    """Deviation of every feature, (F,) float64."""
    encoding: np.ndarray | None = None
    """Eigenvectors, (N, s) float32; None also for a run that was carried elsewhere without them."""
    ids: Any = None
    """The nodes' ids as an Arrow array, by which those of another graph are found; None for 0 … N-1."""
    components: np.ndarray | None = None
    """What features are reduced by, (F, d) float32, where they were too wide."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        tokens: TokenSettings,
        statistics: dict[str, list[float]],
        encoding: np.ndarray | None,
        components: np.ndarray | None = None,
    ) -> "Fitted":
        """What tokens of a graph were made with."""
        mean, std = (np.array(statistics[name]) if statistics else None for name in ("mean", "std"))
        ids = None if encoding is None else graph.ids
        facts = (graph.fingerprint, tokens.feature_scaling, graph.num_features, tokens.encoding_dim)
        return cls(*facts, graph.feature_names, mean, std, encoding, ids, components)

    @property
    def statistics(self) -> dict[str, list[float]]:
        """Mean and deviation, as a store's manifest has them."""
        return {} if self.mean is None or self.std is None else {"mean": self.mean.tolist(), "std": self.std.tolist()}

    def digest(self, graph: Graph) -> str:
        """SHA-256 of all that decides tokens of another graph: mean, deviation, eigenvectors, and nodes' ids."""
        import pyarrow as pa

        digest = hashlib.sha256()
        for array in (self.mean, self.std, self.encoding, *([] if self.components is None else [self.components])):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
        for ids in (self.ids, graph.ids) if self.encoding_dim else ():
            digest.update(b"-" if ids is None else memoryview(pa.record_batch([ids], ["id"]).serialize()))
        return digest.hexdigest()

    @classmethod
    def given(cls, thing: Any) -> "Fitted":
        """What a user gave: something trained, which has it, or the path of a run folder."""
        if isinstance(thing, cls):
            return thing
        if isinstance(thing, str | os.PathLike):
            folder = Path(thing)
            manifest = read_json(folder / "manifest.json", "run", RUN_FORMAT + 1, ("graph",))
            if "recipe" in manifest:
                raise UserError(f"the run in {folder} has several members: name the folder of one, {folder}/members/…")
            found = cls.read(folder, manifest)
            where = f"the run in {folder}"
        elif hasattr(thing, "fitted_"):
            found, where = thing.fitted_, "this classifier"
        else:
            raise UserError(f"statistics= takes a fitted NodeClassifier or the folder of a run, not {thing!r}")
        if found is None:
            raise UserError(f"{where} is of 0.1.0, which kept no mean, deviation and eigenvectors: train it again")
        return found

    def is_foreign(self, graph: Graph) -> bool:
        """Whether tokens of a graph differ from those of its own statistics."""
        return self.settings(TokenSettings()).fits and graph.fingerprint != self.graph

    def settings(self, tokens: TokenSettings) -> TokenSettings:
        """Settings of tokens for the model: scaling and encoding are training's; others that were named are refused."""
        own: dict[str, Any] = {"feature_scaling": self.feature_scaling, "encoding_dim": self.encoding_dim}
        own["reduce_dim"] = 0 if self.components is None else self.components.shape[1]
        for name, value in own.items():
            asked = getattr(tokens, name)
            if asked not in (value, getattr(TokenSettings, name)):
                raise UserError(f"{name}={asked!r} was asked for, but the run was trained with {value!r}: leave it out")
        return replace(tokens, **own)

    def arranged(self, graph: Graph) -> Graph:
        """The graph with its features in the order of training; refuses others, by their names where both have any."""
        names, wanted = graph.feature_names, self.feature_names
        if names is not None and wanted is not None and names != wanted:
            missing = [name for name in wanted if name not in set(names)]
            new = [name for name in names if name not in set(wanted)]
            if missing or new:
                parts = [f"{word} {_listed(each)}" for word, each in (("lacks", missing), ("has besides", new)) if each]
                raise UserError(
                    f"the graph {' and '.join(parts)}: the model was trained on the features {_listed(wanted)}"
                )
        elif graph.num_features != self.num_features:
            expected = f"{self.num_features:,} features" if self.num_features else "a graph without features"
            raise UserError(f"the model was trained on {expected}, but this graph has {graph.num_features or 'none'}")
        if names is None or wanted is None or names == wanted:
            if names is None and wanted is not None:
                note("this graph does not name its features: they are taken in the order of training")
            return graph
        place = {name: column for column, name in enumerate(names)}
        note("features stand in another order than in training: they are matched by their names")
        features: Any = graph.features[:, np.array([place[name] for name in wanted])]  # type: ignore[index]
        if sp.issparse(features):
            features.sort_indices()  # as the fingerprint has them
        return replace(graph, features=features, feature_names=wanted, folder=None)

    def encoding_of(self, graph: Graph, device: str | None) -> np.ndarray:
        """Eigenvectors that mean for a graph's nodes what training's did, (M, s) float32.

        For the graph of training its own. For another they are found among its first s + `SPARE` eigenvectors and those
        that tell its largest parts from each other, turned by the rotation that brings them nearest to training's on
        the nodes both have (orthogonal Procrustes), and scaled to the same length there times the cosine: of what is
        lost, nothing is left, rather than noise. Refused where they do not agree: then the model would be guessing.
        """
        from nagphormer.tokens.laplacian import part_vectors, solve

        if graph.fingerprint == self.graph and self.encoding is not None:
            return self.encoding
        if graph.fingerprint == self.graph:  # carried elsewhere without its eigenvectors, which are found again
            return solve(graph, self.encoding_dim, device=device).vectors
        here, there = self._common(graph, self.encoding_dim + 2 * SPARE)
        wanted = np.asarray(self.encoding, np.float64)[there]  # (n, s)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the graph has only")  # of more than are needed
            found = solve(graph, self.encoding_dim + SPARE, device=device).vectors
        found = np.concatenate([found, part_vectors(graph, SPARE)], axis=1)  # (M, s + 2·SPARE)
        left, _, right = np.linalg.svd(found[here].T @ wanted, full_matrices=False)
        turned = found @ (left @ right)  # (M, s)
        lengths, reached = (np.linalg.norm(each, axis=0) for each in (wanted, turned[here]))
        turned *= np.divide(lengths, reached, out=np.zeros_like(lengths), where=reached > 0)
        note(f"eigenvectors are turned to those of training; {self._agreed(graph, wanted, turned[here])}")
        turned *= np.clip(cosines(wanted, turned[here]), 0, 1)
        return turned.astype(np.float32)

    def refuse_other(
        self,
        graph: Graph,
        manifest: StoreManifest,
        encoding: np.ndarray | None,
        where: str,
        components: np.ndarray | None = None,
    ) -> None:
        """Refuse tokens of a graph, which lie `where`, that were made with other facts than training's.

        These are mean, deviation, what features are reduced by, and eigenvectors.
        """
        if self.components is not None and (
            components is None
            or components.shape != self.components.shape
            or not np.allclose(components, self.components, atol=1e-5)
        ):
            raise UserError(f"{where} tokens whose features were reduced by others than training's vectors: {MEND}")
        if self.mean is not None and self.std is not None:
            same = manifest.statistics and all(
                np.allclose(manifest.statistics[name], mine, rtol=1e-6, atol=1e-12)
                for name, mine in (("mean", self.mean), ("std", self.std))
            )
            if not same:
                raise UserError(f"{where} tokens standardized by another mean and deviation than training's: {MEND}")
        if not self.encoding_dim or encoding is None or not self.is_foreign(graph):
            return
        if manifest.statistics_of != self.graph:
            raise UserError(f"{where} eigenvectors that were not turned to those of training: {MEND}")
        here, there = self._common(graph, self.encoding_dim)
        agreed = self._agreed(graph, np.asarray(self.encoding)[there], np.asarray(encoding)[here])
        note(f"{where} eigenvectors turned to those of training; {agreed}")

    def _agreed(self, graph: Graph, wanted: np.ndarray, found: np.ndarray) -> str:
        """How far eigenvectors of common nodes agree, (n, s) each, in words; refuses them where that is too little."""
        agreed = agreement(wanted, found)
        by = f"by {agreed:.2f} on {len(found):,} common nodes"
        if agreed < LEAST:
            raise UserError(
                f"the eigenvectors of this graph agree with those of training {by}, below {LEAST}: the model cannot "
                f"know what they mean; train it on this graph, or with encoding_dim=0, which moves to any graph"
            )
        return f"they agree {by}, of {graph.num_nodes:,}"

    def _common(self, graph: Graph, num_vectors: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions, in the other graph and in training's, of the nodes both have, (n,) each.

        Refused where they are too few to say what so many eigenvectors mean.
        """
        if self.encoding is None:
            raise UserError(
                f"the run was carried here without {ENCODING}: on a graph other than that of training the model cannot "
                f"know what eigenvectors mean"
            )
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

    def facts(self) -> dict[str, Any]:
        """What the manifest of a run says of it: all but eigenvectors, so that a model can be carried by few files."""
        return {
            "feature_scaling": self.feature_scaling,
            "num_features": self.num_features,
            "encoding_dim": self.encoding_dim,
            "feature_names": self.feature_names,
            **({} if self.components is None else {"reduce_dim": self.components.shape[1]}),
            **self.statistics,
        }

    def write(self, folder: Path) -> None:
        """Write eigenvectors and what features are reduced by, where there are any, into a run folder."""
        from safetensors.numpy import save_file

        if self.components is not None:
            with new_file(folder / REDUCTION) as staging:
                save_file({"components": np.ascontiguousarray(self.components)}, staging)
        if self.encoding is None:
            return
        with new_file(folder / ENCODING) as staging:
            save_file({"encoding": np.ascontiguousarray(self.encoding)}, staging)
        if self.ids is not None:
            with new_file(folder / IDS) as staging:
                write_ids(staging, self.ids)

    @classmethod
    def read(cls, folder: Path, manifest: dict[str, Any]) -> "Fitted | None":
        """What a run folder and its manifest hold; None for a run of 0.1.0, which kept none."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        facts = manifest.get("fitted")
        if facts is None:
            return None
        path, reduction = folder / ENCODING, folder / REDUCTION
        try:
            mean, std = (np.array(facts[name]) if name in facts else None for name in ("mean", "std"))
            names = facts["feature_names"]
            known = (facts["feature_scaling"], facts["num_features"], facts["encoding_dim"])
            encoding = load_file(path)["encoding"] if path.is_file() else None
            ids = read_ids(folder / IDS) if (folder / IDS).is_file() else None
            components = load_file(reduction)["components"] if reduction.is_file() else None
            if components is None and facts.get("reduce_dim"):
                raise UserError(f"{reduction} is missing: without it the model cannot read features; carry it along")
            found = (mean, std, encoding, ids, components)
            return cls(manifest["graph"]["fingerprint"], *known, names and tuple(names), *found)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} or the manifest beside it is damaged ({error}): train again") from error


def cosines(wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The cosine between columns that belong together, (n, s) each -> (s,); of columns of zeros 0."""
    lengths = np.linalg.norm(wanted, axis=0) * np.linalg.norm(found, axis=0)
    return (np.asarray(wanted, np.float64) * found).sum(axis=0) / np.where(lengths > 0, lengths, 1)


def agreement(wanted: np.ndarray, found: np.ndarray) -> float:
    """The mean cosine between columns that belong together, (n, s) each; wanted columns of zeros say nothing.

    The mean, and not the smallest: one eigenvector of many that lives on a few nodes is lost with a single edge, and a
    model misses little with it.
    """
    asked = np.linalg.norm(wanted, axis=0) > 0
    return float(cosines(wanted, found)[asked].mean()) if asked.any() else 0.0


def _listed(names: Any) -> str:
    shown = ", ".join(map(repr, list(names)[:10]))
    return shown + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
