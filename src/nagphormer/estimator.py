"""`NodeClassifier`: the whole system behind `fit` and `predict`."""

import os
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

import numpy as np

from nagphormer.data import frames
from nagphormer.data.graph import Graph, check_graph
from nagphormer.data.splits import with_splits
from nagphormer.device import machine
from nagphormer.errors import UnknownParameter, UserError, nearest, not_fitted
from nagphormer.inference import predict
from nagphormer.inference.table import predictions_table
from nagphormer.metrics import METRICS, check_metric
from nagphormer.model.network import NAGphormer
from nagphormer.progress import shown
from nagphormer.settings import Choice, ClassWeights, Monitor, Precision, Readout, Scaling, TrainConfig, resolve
from nagphormer.tokens.fitted import Fitted
from nagphormer.tokens.store import TokenStore
from nagphormer.training.batches import TokenSource
from nagphormer.training.plan import decide
from nagphormer.training.run import Run, train
from nagphormer.training.run_folder import RunFolder, load_run, replace_run

_NO_SETTINGS = ("recipe", "verbose")
"""Parameters that no run folder keeps: what they stand for is in the settings, or is none of the model's business."""
P = ParamSpec("P")
T = TypeVar("T", bound="NodeClassifier")


def _refusing_unknown(init: Callable[Concatenate[T, P], None]) -> Callable[Concatenate[T, P], None]:
    """Have a constructor answer an argument it does not know with the nearest one."""

    @wraps(init)
    def checked(self: T, *args: P.args, **kwargs: P.kwargs) -> None:
        self._check_known(kwargs)
        init(self, *args, **kwargs)

    return checked


class NodeClassifier:
    """Classifies the nodes of a graph.

    Every setting left at None comes from the recipe, if one is given, and else from `TrainConfig`. Attributes that end
    in an underscore are there after `fit` or `load`. scikit-learn's `clone`, `get_params`, `set_params`,
    `is_classifier` and `check_is_fitted` work; what is fitted is a graph instead of a table.

    >>> from nagphormer import synthetic_graph, random_split
    >>> graph = random_split(synthetic_graph(500, 2000, 16, 3))
    >>> clf = NodeClassifier(hops=2, hidden_dim=32, epochs=5).fit(graph)
    >>> clf.predict_proba(graph, nodes=[0, 1]).shape
    (2, 3)
    """

    hops: int | None
    """K: every node gets K+1 tokens."""
    encoding_dim: int | None
    """Laplacian eigenvectors joined to the features."""
    hidden_dim: int | None
    """D, width of the network."""
    num_layers: int | None
    """L, encoder layers."""
    num_heads: int | None
    """Attention heads; must divide hidden_dim."""
    dropout: float | None
    """Dropout after attention and feed-forward."""
    attention_dropout: float | None
    """Dropout on attention weights."""
    feature_dropout: float | None
    """Share of input columns hidden from each batch in training; by default F / (F + training nodes)."""
    readout: Readout | None
    """How tokens become one vector; attention is the paper's, self is hop 0 alone."""
    lr: float | None
    """Learning rate at its peak."""
    final_lr: float | None
    """Learning rate after the decay; never above lr."""
    warmup_updates: int | None
    """Updates over which the learning rate rises to its peak."""
    decay_updates: int | None
    """Update at which it has fallen, along a line, to final_lr."""
    weight_decay: float | None
    """AdamW's weight decay."""
    clip_norm: float | None
    """Largest norm of a gradient; longer ones are shortened to it. 0 for no limit."""
    class_weights: ClassWeights | None
    """balanced: rare classes weigh more in the loss, each class the same in total."""
    batch_size: int | None
    """Nodes of an update."""
    epochs: int | None
    """Passes over the training nodes, at most."""
    patience: int | None
    """Epochs to go on without a better value of what is monitored, or a lower loss, on the validation nodes."""
    feature_scaling: Scaling | None
    """Standardize columns, make rows sum to one, or neither; by default measurements are standardized, counts not."""
    precision: Precision | None
    """fp32, bf16, or auto: bf16 where the processor multiplies it faster."""
    project_first: Choice | None
    """Embed features before the hops, inside every update, instead of storing tokens; auto: whichever costs less."""
    linear: bool | None
    """Train a linear classifier of the tokens along and average its scores with the network's; the paper has none."""
    averaging: float | None
    """Share of earlier epochs in the weights that are validated and kept; 0 for each epoch's own, as in the paper."""
    recipe: str | None
    """A recipe that comes with the package (paper), or the path of a YAML file; arguments win over it."""
    device: str | None
    """cpu or cuda; by default a GPU where there is one."""
    seed: int | None
    """Of the initial weights, batches and dropout; and of the split where one is drawn."""
    restart_on_ties: bool | None
    """Count an accuracy or loss that equals the best as better for patience, as in the code of the paper's authors."""
    verbose: bool | None
    """True: lines about what goes on; False: nothing; by default a bar on a terminal or a line in a notebook."""
    monitor: Monitor | None
    """What of the validation nodes chooses the best epoch; with several labels a node, accuracy means micro-F1."""
    classes_: np.ndarray
    """(C,) names of the classes, or 0 … C-1; columns of `predict_proba` follow it."""
    config_: TrainConfig
    """The settings that were used, with nothing left open."""
    model_: NAGphormer
    """The trained network, an `nn.Module`."""
    history_: list[dict[str, Any]]
    """One record per epoch; `train_loss` is of the weights in training, `val_…` of the averaged ones."""
    splits_: dict[str, np.ndarray]
    """The nodes it was trained, validated and is to be tested on."""
    best_epoch_: int
    """The epoch whose weights, averaged with those of the epochs before, were kept."""
    temperature_: float
    """What scores of `model_` are divided by before they become probabilities, found on the validation nodes."""
    n_features_in_: int
    """Features of a node; a graph without any has one, log(1 + degree)."""
    feature_names_in_: np.ndarray
    """(F,) names of the features, in the order of training; not there where the graph had none."""
    fitted_: Fitted | None
    """What tokens take from the graph of training: names of features, mean and deviation, eigenvectors."""
    tokens_: TokenSource | None
    """Where the tokens of the last graph it was used on come from."""

    @_refusing_unknown
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
        restart_on_ties: bool | None = None,
        verbose: bool | None = None,
        monitor: Monitor | None = None,
    ):
        self.hops = hops
        self.encoding_dim = encoding_dim
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.feature_dropout = feature_dropout
        self.readout = readout
        self.lr = lr
        self.final_lr = final_lr
        self.warmup_updates = warmup_updates
        self.decay_updates = decay_updates
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.class_weights = class_weights
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.feature_scaling = feature_scaling
        self.precision = precision
        self.project_first = project_first
        self.linear = linear
        self.averaging = averaging
        self.recipe = recipe
        self.device = device
        self.seed = seed
        self.restart_on_ties = restart_on_ties
        self.verbose = verbose
        self.monitor = monitor

    @classmethod
    def _names(cls) -> list[str]:
        return [*(field.name for field in fields(TrainConfig)), *_NO_SETTINGS]

    @classmethod
    def _check_known(cls, params: dict[str, Any]) -> None:
        """Refuse names of parameters that there are not."""
        for name in params:
            if name not in cls._names():
                raise UnknownParameter(f"NodeClassifier has no parameter {name!r}.{nearest(name, cls._names())}")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as given."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; takes effect at the next `fit`."""
        self._check_known(params)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_run")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),  # the graph holds the labels
            classifier_tags=ClassifierTags(multi_label=True),
            input_tags=InputTags(two_d_array=False),
            no_validation=True,
        )

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if value is not None)
        return f"NodeClassifier({given})"

    def fit(self, graph: Graph, y: None = None, *, tokens: TokenStore | None = None) -> Self:
        """Train on the graph's `train` nodes and stop by its `val` nodes; `test` nodes are not looked at.

        Args:
            graph: a graph with labels; without splits it gets a random one, and a warning says so.
            y: nothing; the graph holds the labels, but tools of scikit-learn have two arguments.
            tokens: its token store, for graphs whose tokens should stay on disk; made in memory by default.
        """
        check_graph(graph)
        _check_store(tokens)
        if y is not None:
            raise UserError("y is not read, since the graph holds the labels: give them to the graph, and leave y out")
        with shown(self.verbose):
            given = self.settings_for(graph, tokens)
            graph, here = with_splits(graph, given.seed), machine(given.device)
            run, source = train(graph, decide(graph, given, here, tokens), here, tokens)
        self._adopt(run)
        self._keep(source, graph)
        if run.diverged:
            raise UserError(run.diverged)
        return self

    def settings_for(self, graph: Graph, tokens: TokenStore | None = None) -> TrainConfig:
        """The settings that `fit` would take for a graph: defaults, recipe and arguments in one.

        Args:
            graph: the graph, by whose name a recipe may choose.
            tokens: its token store, if there is one, whose settings hold.
        """
        params = {name: value for name, value in self.get_params().items() if name not in _NO_SETTINGS}
        return resolve(self.recipe, graph.name, params, tokens.tokens if tokens else None)

    @overload
    def predict(
        self,
        graph: Graph,
        nodes: Any = None,
        *,
        node_ids: Any = None,
        split: str | None = None,
        tokens: TokenStore | None = None,
        as_frame: Literal[False] = False,
    ) -> np.ndarray: ...
    @overload
    def predict(
        self,
        graph: Graph,
        nodes: Any = None,
        *,
        node_ids: Any = None,
        split: str | None = None,
        tokens: TokenStore | None = None,
        as_frame: Literal[True] | frames.Frame,
    ) -> Any: ...
    def predict(
        self,
        graph: Graph,
        nodes: Any = None,
        *,
        node_ids: Any = None,
        split: str | None = None,
        tokens: TokenStore | None = None,
        as_frame: bool | frames.Frame = False,
    ) -> Any:
        """The class of every node asked for, by name where the classes have names; 0 and 1 for multi-label tasks.

        Args:
            graph: the graph of training, or another with the same features, by name where both have names.
            nodes: positions, a slice or a mask; all by default.
            node_ids: the user's own ids instead of positions.
            split: `train`, `val` or `test` instead: all nodes of that split, labeled or not, in the order of
                `graph.splits[split]`, which is ascending.
            tokens: the graph's token store, if it has one.
            as_frame: give a frame of pandas (True), polars or Arrow, by its name: for each node `node_id`,
                `prediction`, its `probability`, and `p_<class>` of every class.

        Returns:
            (n,) classes; (n, C) of 0 and 1 for multi-label tasks; or a frame.
        """
        if as_frame:
            kind: frames.Frame = "pandas" if as_frame is True else as_frame
            frames.check_frame(kind)

            def framed(run: Run, source: TokenSource, positions: np.ndarray) -> Any:
                return frames.as_frame(predictions_table(run, source, graph, positions), kind)

            return self._infer(framed, graph, nodes, node_ids, split, tokens)
        decided = self._infer(predict.decisions, graph, nodes, node_ids, split, tokens)
        return decided if self._multi_label else self.classes_[decided]

    def predict_proba(
        self,
        graph: Graph,
        nodes: Any = None,
        *,
        node_ids: Any = None,
        split: str | None = None,
        tokens: TokenStore | None = None,
    ) -> np.ndarray:
        """Probabilities, (n, C), columns in the order of `classes_`; arguments as for `predict`."""
        return self._infer(predict.probabilities, graph, nodes, node_ids, split, tokens)

    def embed(
        self,
        graph: Graph,
        nodes: Any = None,
        *,
        node_ids: Any = None,
        split: str | None = None,
        tokens: TokenStore | None = None,
    ) -> np.ndarray:
        """What the network's head reads of each node, (n, D); arguments as for `predict`."""
        return self._infer(predict.embeddings, graph, nodes, node_ids, split, tokens)

    def hop_attention(
        self,
        graph: Graph,
        nodes: Any = None,
        *,
        node_ids: Any = None,
        split: str | None = None,
        tokens: TokenStore | None = None,
    ) -> np.ndarray:
        """How much each hop 1 … K counted in the network's readout, (n, K), rows sum to 1; else like `predict`."""
        return self._infer(predict.hop_attention, graph, nodes, node_ids, split, tokens)

    def score(
        self, graph: Graph, split: str = "test", metric: str = "accuracy", *, tokens: TokenStore | None = None
    ) -> float:
        """A metric on one of the graph's splits.

        One of accuracy, macro_f1, micro_f1, roc_auc and average_precision, of which more is better, or log_loss and
        ece, of which less is.
        """
        run = self._fitted()
        check_metric(metric)
        _check_store(tokens)
        with shown(self.verbose):
            graph = predict.fitting(run, graph)
            nodes, target = predict.question(run, graph, split)
            return METRICS[metric](target, predict.probabilities(run, self._source_of(graph, tokens), nodes))

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write a run folder: weights, settings, history; no pickle. `load` and the command line read it.

        Args:
            path: a folder that is not there yet, or is empty.
            overwrite: put it in place of a run folder that is there, which goes when the new one is complete.
        """
        if overwrite:
            replace_run(path, self._fitted())
        else:
            RunFolder.take(path).write(self._fitted())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open what `save` or `nagphormer train` wrote; its parameters are what was given at training."""
        run = load_run(path)
        loaded = cls(**asdict(run.best.plan.given) | {"device": None})  # this machine may have another
        loaded._adopt(run)
        return loaded

    def _adopt(self, run: Run) -> None:
        self._run = run
        self.fitted_ = run.fitted
        self.tokens_, self._tokens_of = None, ("", None)
        self.classes_ = run.classes.values
        self.config_ = run.config
        self.model_ = run.best.model
        self.history_ = run.best.history
        self.splits_ = run.splits
        self.best_epoch_ = run.best.outcome["best_epoch"]
        self.temperature_ = run.temperature
        self.n_features_in_ = run.best.plan.model.input_dim - run.best.plan.tokens.encoding_dim
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        if run.fitted is not None and run.fitted.feature_names is not None:
            self.feature_names_in_ = np.array(run.fitted.feature_names, dtype=object)

    @property
    def _multi_label(self) -> bool:
        return self._fitted().classes.multi_label

    def _fitted(self) -> Run:
        if not hasattr(self, "_run"):
            raise not_fitted(
                "this NodeClassifier is not fitted yet: call fit(graph) or NodeClassifier.load(path) first"
            )
        return self._run

    def _infer(
        self, work: Any, graph: Graph, nodes: Any, node_ids: Any, split: str | None, tokens: TokenStore | None
    ) -> Any:
        run = self._fitted()
        _check_store(tokens)
        if split is not None and (nodes is not None or node_ids is not None):
            raise UserError("give nodes, node_ids or split, one of them")
        with shown(self.verbose):
            graph = predict.fitting(run, graph)
            if split is None:
                positions = predict.positions(graph, nodes, node_ids)
            else:
                positions, _ = predict.nodes_of_split(run, graph, split)
            return work(run, self._source_of(graph, tokens), positions)

    def _source_of(self, graph: Graph, tokens: TokenStore | None) -> TokenSource:
        """The graph's tokens: given, those used last, or made now."""
        run = self._fitted()
        fingerprint, ids = self._tokens_of
        same_ids = ids is graph.ids or (ids is not None and graph.ids is not None and ids.equals(graph.ids))
        if tokens is not None or self.tokens_ is None or fingerprint != graph.fingerprint or not same_ids:
            self._keep(predict.open_source(run, graph, machine(self.device).device, tokens), graph)
        assert self.tokens_ is not None
        return self.tokens_

    def _keep(self, source: TokenSource, graph: Graph) -> None:
        """Hold a graph's tokens until those of another are asked for; ids matter where eigenvectors are turned."""
        self.tokens_, self._tokens_of = source, (graph.fingerprint, graph.ids)


def _check_store(tokens: Any) -> None:
    """Refuse anything but a token store where one is given."""
    if tokens is not None and not isinstance(tokens, TokenStore):
        raise UserError(f"tokens must be a TokenStore, not {tokens!r}: TokenStore.open(path) opens one")
