"""`NodeClassifier`: the whole system behind `fit` and `predict`."""

import os
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

import numpy as np
from torch import nn

from nagphormer.data import frames
from nagphormer.data.graph import Graph, check_graph
from nagphormer.data.splits import with_splits
from nagphormer.device import Machine, machine
from nagphormer.errors import UnknownParameter, UserError, nearest, not_fitted
from nagphormer.files import parse_seconds
from nagphormer.inference import predict
from nagphormer.inference.predict import Sources
from nagphormer.inference.table import predictions_table
from nagphormer.metrics import METRICS, check_metric
from nagphormer.progress import shown
from nagphormer.settings import (
    Choice,
    ClassWeights,
    Monitor,
    Network,
    Precision,
    Readout,
    Scaling,
    TrainConfig,
    resolve_members,
)
from nagphormer.tokens.fitted import Fitted
from nagphormer.tokens.store import TokenStore
from nagphormer.training.batches import TokenSource
from nagphormer.training.ensemble import Ensemble, MeanModel, Trained, lead_of, train_members
from nagphormer.training.ensemble_folder import load_trained, replace_trained, write_trained
from nagphormer.training.leaderboard import leaderboard
from nagphormer.training.plan import decide
from nagphormer.training.run import Run, train

_NO_SETTINGS = ("recipe", "verbose", "time_limit")
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
    """How tokens become one vector; attention is the paper's, self is hop 0 alone, dynamic has Z_0 weigh the hops."""
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
    """Nodes of an update; by default an eighth of the training nodes, from 16 to 1000."""
    epochs: int | None
    """Passes over the training nodes, at most."""
    patience: int | None
    """Epochs to go on without a better value of what is monitored, or a lower loss, on the validation nodes."""
    feature_scaling: Scaling | None
    """Standardize columns, make rows sum to one or of one length, or none; by default it follows from the features."""
    precision: Precision | None
    """fp32, bf16, or auto: bf16 where the processor multiplies it faster."""
    project_first: Choice | None
    """Embed features before the hops, inside every update, instead of storing tokens; auto: whichever costs less."""
    linear: bool | None
    """Train a linear classifier of the tokens along with a transformer, and average the scores; the paper has none."""
    averaging: float | None
    """Share of earlier epochs in the weights that are validated and kept; 0 for each epoch's own, as in the paper."""
    recipe: str | None
    """A recipe that comes with the package (best, paper, transformer), or the path of a YAML file; arguments win."""
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
    network: Network | None
    """What reads the tokens: the paper's transformer, an mlp with a map of its own for each hop, or a linear map."""
    own_maps: bool | None
    """Give each hop an embedding of its own in the transformer, too; the paper's hops share one."""
    reduce_dim: int | None
    """Most columns that features may have: wider ones are reduced to their first singular vectors; 0 for no limit."""
    label_hops: int | None
    """Labels of training nodes, averaged over 1 … so many hops, as further tokens; no node ever reads its own."""
    edge_copies: int | None
    """Tokens of so many copies of the graph with half of the edges, one an epoch in training; 0 for the graph alone."""
    label_smoothing: float | None
    """Share of the target that is spread over all classes alike."""
    time_limit: str | float | None
    """For a recipe with several members: how long fitting and predicting all nodes may take, such as 10m; seconds."""
    token_dropout: float | None
    """Share of the tokens beside hop 0 that are hidden from each node in training an mlp."""
    classes_: np.ndarray
    """(C,) names of the classes, or 0 … C-1; columns of `predict_proba` follow it."""
    config_: TrainConfig
    """The settings that were used, with nothing left open; of several members those of the heaviest."""
    model_: nn.Module
    """The trained network; of several members one that takes a list of their tokens and averages their answers."""
    history_: list[dict[str, Any]]
    """One record per epoch; `train_loss` is of the weights in training, `val_…` of the averaged ones."""
    splits_: dict[str, np.ndarray]
    """The nodes it was trained, validated and is to be tested on."""
    best_epoch_: int
    """The epoch whose weights, averaged with those of the epochs before, were kept."""
    temperature_: float
    """What scores are divided by before they become probabilities, found on the validation nodes."""
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
        network: Network | None = None,
        own_maps: bool | None = None,
        reduce_dim: int | None = None,
        label_hops: int | None = None,
        edge_copies: int | None = None,
        label_smoothing: float | None = None,
        time_limit: str | float | None = None,
        token_dropout: float | None = None,
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
        self.network = network
        self.own_maps = own_maps
        self.reduce_dim = reduce_dim
        self.label_hops = label_hops
        self.edge_copies = edge_copies
        self.label_smoothing = label_smoothing
        self.time_limit = time_limit
        self.token_dropout = token_dropout

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
        limit = parse_seconds(self.time_limit)
        with shown(self.verbose):
            members = self._members(graph, tokens)
            given = next(iter(members.values()))
            if len(members) == 1 and self.time_limit is not None:
                raise UserError("time_limit is for a recipe with several members, such as recipe='best': leave it out")
            if len(members) > 1 and tokens is not None:
                raise UserError("the members of this recipe read tokens of several kinds: leave tokens out")
            graph, here = with_splits(graph, given.seed), machine(given.device)
            if len(members) > 1:
                self._fit_members(graph, members, here, limit)
                return self
            run, source = train(graph, decide(graph, given, here, tokens), here, tokens)
        self._adopt(run)
        self._keep((source,), graph)
        if run.diverged:
            raise UserError(run.diverged)
        return self

    def _fit_members(self, graph: Graph, members: dict[str, TrainConfig], here: Machine, limit: float) -> None:
        """Train the members of a recipe, with their tokens in memory as far as half of it goes."""
        first = next(iter(members.values()))  # has them as numbers that a file can hold
        given = {name: getattr(first, name) for name, value in self._settings().items() if value is not None}
        run, sources = train_members(
            graph, members, here, str(self.recipe), given, time_limit=limit, room=here.memory // 2
        )
        self._adopt(run)
        self._keep(tuple(sources[part.name] for part in run.asked), graph)

    def _settings(self) -> dict[str, Any]:
        """Parameters that are settings of a model."""
        return {name: value for name, value in self.get_params().items() if name not in _NO_SETTINGS}

    def _members(self, graph: Graph, tokens: TokenStore | None = None) -> dict[str, TrainConfig]:
        """Settings by member; a recipe of one has one without a name."""
        return resolve_members(self.recipe, graph.name, self._settings(), tokens.tokens if tokens else None)

    def has_members(self, graph: Graph) -> bool:
        """Whether the recipe names several members for a graph, which answer together."""
        return len(self._members(graph)) > 1

    def settings_for(self, graph: Graph, tokens: TokenStore | None = None) -> TrainConfig:
        """The settings that `fit` would take for a graph: defaults, recipe and arguments in one.

        Of a recipe with several members they are those of the first.

        Args:
            graph: the graph, by whose name a recipe may choose.
            tokens: its token store, if there is one, whose settings hold.
        """
        return next(iter(self._members(graph, tokens).values()))

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

            def framed(run: Trained, source: Sources, positions: np.ndarray) -> Any:
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
            run = predict.usable(run, graph)
            nodes, target = predict.question(run, graph, split)
            return METRICS[metric](target, predict.probabilities(run, self._sources_of(run, graph, tokens), nodes))

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write a run folder: weights, settings, history; no pickle. `load` and the command line read it.

        Args:
            path: a folder that is not there yet, or is empty.
            overwrite: put it in place of a run folder that is there, which goes when the new one is complete.
        """
        if overwrite:
            replace_trained(path, self._fitted())
        else:
            write_trained(path, self._fitted())

    def leaderboard(self, as_frame: bool | frames.Frame = False) -> Any:
        """What each member scored on the validation nodes, weighs in the answers, and costs; the heaviest first.

        Args:
            as_frame: give a frame of pandas (True), polars or Arrow, by its name, instead of a list.

        Returns:
            For each member `name`, `weight`, `score` (accuracy; micro-F1 for several labels a node), `loss` (log
            loss), `train_seconds` with its tokens, and `predict_seconds` for a million nodes, where it is known.
        """
        rows = leaderboard(self._fitted())
        if not as_frame:
            return rows
        import pyarrow as pa

        return frames.as_frame(pa.Table.from_pylist(rows), "pandas" if as_frame is True else as_frame)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open what `save` or `nagphormer train` wrote; its parameters are what was given at training."""
        run = load_trained(path)
        if isinstance(run, Ensemble):
            given: dict[str, Any] = {"recipe": run.recipe} | run.given
        else:
            given = asdict(run.best.plan.given)
        loaded = cls(**given | {"device": None})  # this machine may have another
        loaded._adopt(run)
        return loaded

    def _adopt(self, run: Trained) -> None:
        self._run, lead = run, lead_of(run)
        self.fitted_ = lead.fitted
        self._sources: Sources = ()
        self.tokens_, self._tokens_of = None, ("", None)
        self.classes_ = run.classes.values
        self.config_ = lead.config
        self.model_ = lead.best.model if isinstance(run, Run) else MeanModel(run)
        self.history_ = lead.best.history
        self.splits_ = run.splits
        self.best_epoch_ = lead.best.outcome["best_epoch"]
        self.temperature_ = run.temperature
        self.n_features_in_ = lead.num_features
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        if lead.fitted is not None and lead.fitted.feature_names is not None:
            self.feature_names_in_ = np.array(lead.fitted.feature_names, dtype=object)

    @property
    def _multi_label(self) -> bool:
        return self._fitted().classes.multi_label

    def _fitted(self) -> Trained:
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
            run = predict.usable(run, graph)
            if split is None:
                positions = predict.positions(graph, nodes, node_ids)
            else:
                positions, _ = predict.nodes_of_split(run, graph, split)
            return work(run, self._sources_of(run, graph, tokens), positions)

    def _sources_of(self, run: Trained, graph: Graph, tokens: TokenStore | None) -> Sources:
        """The graph's tokens, for each of the models that are asked: given, those used last, or made now."""
        fingerprint, ids = self._tokens_of
        same_ids = ids is graph.ids or (ids is not None and graph.ids is not None and ids.equals(graph.ids))
        if tokens is not None or not self._sources or fingerprint != graph.fingerprint or not same_ids:
            self._keep(predict.open_sources(run, graph, machine(self.device).device, tokens), graph)
        return self._sources

    def _keep(self, sources: Sources, graph: Graph) -> None:
        """Hold a graph's tokens until those of another are asked for; ids matter where eigenvectors are turned."""
        self.tokens_, self._sources, self._tokens_of = sources[0], sources, (graph.fingerprint, graph.ids)


def _check_store(tokens: Any) -> None:
    """Refuse anything but a token store where one is given."""
    if tokens is not None and not isinstance(tokens, TokenStore):
        raise UserError(f"tokens must be a TokenStore, not {tokens!r}: TokenStore.open(path) opens one")
