"""`NodeClassifier`: the whole system behind `fit` and `predict`."""

import os
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from nagphormer.data.graph import Graph
from nagphormer.data.splits import with_splits
from nagphormer.device import machine
from nagphormer.errors import UserError, nearest
from nagphormer.inference import predict
from nagphormer.metrics import METRICS, check_metric
from nagphormer.settings import Choice, ClassWeights, Precision, Readout, Scaling, TrainConfig, resolve
from nagphormer.tokens.store import TokenStore
from nagphormer.training.batches import TokenSource
from nagphormer.training.plan import decide
from nagphormer.training.run import Run, train
from nagphormer.training.run_folder import RunFolder, load_run


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
        params = {name: value for name, value in self.get_params().items() if name != "recipe"}
        given = resolve(self.recipe, graph.name, params, tokens.tokens if tokens else None)  # type: ignore[attr-defined]
        graph, here = with_splits(graph, given.seed), machine(given.device)
        run, source = train(graph, decide(graph, given, here, tokens), here, tokens)
        self._adopt(run)
        self.tokens_, self._tokens_graph = source, graph.fingerprint
        if run.diverged:
            raise UserError(run.diverged)
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
        run = self._fitted()
        check_metric(metric)
        nodes, target = predict.question(run, graph, split)
        return METRICS[metric](target, predict.probabilities(run, self._source_of(graph, tokens), nodes))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a run folder: weights, settings, history; no pickle. `load` and the command line read it."""
        RunFolder.take(path).write(self._fitted())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "NodeClassifier":
        """Open what `save` or `nagphormer train` wrote; its parameters are what was given at training."""
        run = load_run(path)
        loaded = cls(**asdict(run.best.plan.given) | {"device": None})  # this machine may have another
        loaded._adopt(run)
        return loaded

    def _adopt(self, run: Run) -> None:
        self._run = run
        self.tokens_ = None
        self.classes_ = run.classes.values
        self.config_ = run.config
        self.model_ = run.best.model
        self.history_ = run.best.history
        self.splits_ = run.splits
        self.best_epoch_ = run.best.outcome["best_epoch"]

    @property
    def _multi_label(self) -> bool:
        return self._fitted().classes.multi_label

    def _fitted(self) -> Run:
        if not hasattr(self, "_run"):
            raise UserError("this NodeClassifier is not fitted yet: call fit(graph) or NodeClassifier.load(path) first")
        return self._run

    def _infer(self, work: Any, graph: Graph, nodes: Any, node_ids: Any, tokens: TokenStore | None) -> np.ndarray:
        positions = predict.positions(graph, nodes, node_ids)
        return work(self._fitted(), self._source_of(graph, tokens), positions)

    def _source_of(self, graph: Graph, tokens: TokenStore | None) -> TokenSource:
        """The graph's tokens: given, those used last, or made now."""
        run = self._fitted()
        if tokens is not None or self.tokens_ is None or self._tokens_graph != graph.fingerprint:
            self.tokens_ = predict.open_source(run, graph, machine(self.device).device, tokens)  # type: ignore[attr-defined]
            self._tokens_graph = graph.fingerprint
        return self.tokens_
