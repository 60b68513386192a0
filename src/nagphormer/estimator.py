"""`NodeClassifier`: the whole system behind `fit` and `predict`."""

import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.graph import Graph
from nagphormer.errors import UserError, nearest
from nagphormer.inference import predict
from nagphormer.settings import Choice, ClassWeights, Precision, Readout, Scaling, TrainConfig, resolve
from nagphormer.tokens.store import TokenStore
from nagphormer.training.run import Trained, check_vacant_run, load_run, train_model
from nagphormer.training.sources import TokenSource
from nagphormer.training.task import with_splits


class NodeClassifier:
    """Classifies the nodes of a graph.

    Every setting left at None comes from the recipe, if one is given, and else from `TrainConfig`, which describes
    them all. scikit-learn's `clone`, `get_params` and `set_params` work.

    Attributes:
        classes_: (C,) names of the classes, or 0 … C-1; columns of `predict_proba` follow it.
        config_: the settings that were used, a `TrainConfig`.
        model_: the trained `NAGphormer`, an `nn.Module`.
        history_: one record per epoch; `train_loss` is of the weights in training, `val_…` of the averaged ones.
        splits_: the nodes it was trained, validated and is to be tested on.
        best_epoch_: the epoch whose weights, averaged with those of the epochs before, were kept.
        tokens_: where the tokens of the last graph it was used on come from.

    >>> from nagphormer import synthetic_graph, random_split
    >>> graph = random_split(synthetic_graph(500, 2000, 16, 3))
    >>> clf = NodeClassifier(hops=2, hidden_dim=32, epochs=5).fit(graph)
    >>> clf.predict_proba(graph, nodes=[0, 1]).shape
    (2, 3)
    """

    tokens_: TokenSource | None

    def __init__(
        self,
        hops: int | None = None,
        encoding_dim: int | None = None,
        hidden_dim: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        feature_dropout: float | None = None,
        readout: Readout | None = None,
        lr: float | None = None,
        final_lr: float | None = None,
        warmup_updates: int | None = None,
        decay_updates: int | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        class_weights: ClassWeights | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        feature_scaling: Scaling | None = None,
        precision: Precision | None = None,
        project_first: Choice | None = None,
        linear: bool | None = None,
        averaging: float | None = None,
        recipe: str | None = None,
        device: str | None = None,
        seed: int | None = None,
    ):
        given = locals()
        for name in self._names():
            setattr(self, name, given[name])

    @classmethod
    def _names(cls) -> list[str]:
        return [*(field.name for field in fields(TrainConfig)), "recipe"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as given."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> "NodeClassifier":
        """Change constructor arguments; takes effect at the next `fit`."""
        for name in params:
            if name not in self._names():
                raise UserError(f"NodeClassifier has no parameter {name!r}.{nearest(name, self._names())}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if value is not None)
        return f"NodeClassifier({given})"

    def fit(self, graph: Graph, *, tokens: TokenStore | None = None) -> "NodeClassifier":
        """Train on the graph's `train` nodes and stop by its `val` nodes; `test` nodes are not looked at.

        Args:
            graph: a graph with labels; without splits it gets a random one, and a warning says so.
            tokens: its token store, for graphs whose tokens should stay on disk; made in memory by default.
        """
        given = {name: value for name, value in self.get_params().items() if name != "recipe"}
        config = resolve(self.recipe, graph.name, given, tokens.tokens if tokens else None)  # type: ignore[attr-defined]
        graph = with_splits(graph, config.seed)
        trained, source = train_model(graph, config, tokens)
        self._adopt(trained)
        self.tokens_, self._tokens_graph = source, graph.fingerprint
        if trained.diverged:
            raise UserError(trained.diverged)
        return self

    def predict(
        self, graph: Graph, nodes: Any = None, *, node_ids: Any = None, tokens: TokenStore | None = None
    ) -> np.ndarray:
        """The class of every node asked for, by name where the classes have names; 0 and 1 for multi-label tasks.

        Args:
            graph: the graph of training, or one with the same features.
            nodes: positions, a slice or a mask; all by default.
            node_ids: the user's own ids instead of positions.
            tokens: the graph's token store, if it has one.

        Returns:
            (n,) classes; (n, C) of 0 and 1 for multi-label tasks.
        """
        decided = self._infer(predict.decisions, graph, nodes, node_ids, tokens)
        return decided if self._multi_label else self.classes_[decided]

    def predict_proba(
        self, graph: Graph, nodes: Any = None, *, node_ids: Any = None, tokens: TokenStore | None = None
    ) -> np.ndarray:
        """Probabilities, (n, C), columns in the order of `classes_`; arguments as for `predict`."""
        return self._infer(predict.probabilities, graph, nodes, node_ids, tokens)

    def embed(
        self, graph: Graph, nodes: Any = None, *, node_ids: Any = None, tokens: TokenStore | None = None
    ) -> np.ndarray:
        """What the network's head reads of each node, (n, D); arguments as for `predict`."""
        return self._infer(predict.embeddings, graph, nodes, node_ids, tokens)

    def hop_attention(
        self, graph: Graph, nodes: Any = None, *, node_ids: Any = None, tokens: TokenStore | None = None
    ) -> np.ndarray:
        """How much each hop 1 … K counted in the network's readout, (n, K), rows sum to 1; else like `predict`."""
        return self._infer(predict.hop_attention, graph, nodes, node_ids, tokens)

    def score(
        self, graph: Graph, split: str = "test", metric: str = "accuracy", *, tokens: TokenStore | None = None
    ) -> float:
        """A metric on one of the graph's splits.

        One of accuracy, macro_f1, micro_f1 and roc_auc, of which more is better, or log_loss and ece, of which less is.
        """
        predict.check_question(self._fitted(), graph, split, metric)
        return predict.score(self._fitted(), self._source_of(graph, tokens), graph, split, metric)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a run folder: weights, settings, history; no pickle. `load` and the command line read it."""
        check_vacant_run(Path(path))
        self._fitted().save(Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "NodeClassifier":
        """Open what `save` or `nagphormer train` wrote."""
        trained = load_run(path)
        settings = asdict(trained.config) | {"device": None}  # this machine may have another
        if settings["project_first"] == "always":
            settings["project_first"] = None  # another graph's features may be dense
        loaded = cls(**settings)
        loaded._adopt(trained)
        return loaded

    def _adopt(self, trained: Trained) -> None:
        self._trained = trained
        self.tokens_ = None
        self.classes_ = trained.classes.values
        self.config_ = trained.config
        self.model_ = trained.model
        self.history_ = trained.history
        self.splits_ = trained.splits
        self.best_epoch_ = trained.outcome["best_epoch"]

    @property
    def _multi_label(self) -> bool:
        return self._fitted().classes.multi_label

    def _fitted(self) -> Trained:
        if not hasattr(self, "_trained"):
            raise UserError("this NodeClassifier is not fitted yet: call fit(graph) or NodeClassifier.load(path) first")
        return self._trained

    def _infer(self, work: Any, graph: Graph, nodes: Any, node_ids: Any, tokens: TokenStore | None) -> np.ndarray:
        positions = predict.positions(graph, nodes, node_ids)
        return work(self._fitted(), self._source_of(graph, tokens), positions)

    def _source_of(self, graph: Graph, tokens: TokenStore | None) -> TokenSource:
        """The graph's tokens: given, those used last, or made now."""
        trained = self._fitted()
        if tokens is not None or self.tokens_ is None or self._tokens_graph != graph.fingerprint:
            self.tokens_ = predict.open_source(trained, graph, self.device, tokens)  # type: ignore[attr-defined]
            self._tokens_graph = graph.fingerprint
        return self.tokens_
