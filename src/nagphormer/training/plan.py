"""What a training will do, decided before any work: every check and every choice, in reading order.

What was asked for (`TrainConfig`) is never overwritten: a `Plan` holds it beside what was decided.
"""

import warnings
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from nagphormer.data.classes import Classes, name_of
from nagphormer.data.graph import Graph
from nagphormer.data.splits import labeled_among
from nagphormer.data.summary import training_homophily
from nagphormer.device import Machine, kind
from nagphormer.errors import UserError
from nagphormer.settings import Dtype, ModelConfig, NetworkConfig, Scaling, TokenSettings, TrainConfig
from nagphormer.tokens.hop2token import refuse_statistics
from nagphormer.tokens.labels import label_bytes
from nagphormer.tokens.store import TokenStore

Way = Literal["stored", "projected"]
"""How tokens reach the network: from a store, or embedded first and propagated inside every update."""
Decided = Literal["fp32", "bf16"]

SPARSE_COST = {"cpu": 10.0, "cuda": 100.0}
"""Time of a multiply-add in a sparse product, in those of a dense one."""
ALIKE = 0.5
"""Share of edges within a class below which neighbors count as different."""
UPDATES, SMALLEST_BATCH, LARGEST_BATCH = 8, 16, 1000
"""Updates of an epoch, where the training nodes are few, and bounds of a batch."""
GATHER_COST = 150.0
"""Time of gathering and widening one stored value, in dense multiply-adds."""


@dataclass(frozen=True)
class Plan:
    """What was asked for, and what was decided; no tensor and no device in it, so that all ranks can agree on one."""

    given: TrainConfig
    """None and `auto` in it mean: decide for me."""
    tokens: TokenSettings
    way: Way
    model: ModelConfig
    precision: Decided
    batch_size: int = 1000

    @property
    def resolved(self) -> TrainConfig:
        """The settings with nothing left open, as they are written down."""
        return replace(
            self.given,
            feature_scaling=self.tokens.feature_scaling,
            reduce_dim=self.tokens.reduce_dim,
            batch_size=self.batch_size,
            feature_dropout=self.model.feature_dropout,
            precision=self.precision,
            project_first="always" if self.way == "projected" else "never",
        )

    def way_for(self, graph: Graph) -> Way:
        """The way for a graph the model is used on: that of training, but dense features are not projected."""
        return self.way if graph.sparse else "stored"


def decide(
    graph: Graph, given: TrainConfig, here: Machine, store: TokenStore | None = None, begun: Plan | None = None
) -> Plan:
    """Check what was asked for and choose what was left open.

    Args:
        graph: with labels and splits.
        given: the settings.
        here: the machine it will run on.
        store: the graph's tokens, if they are made already.
        begun: the plan of a run that is to go on; it keeps what it chose, whatever the machine is like now.
    """
    classes = check_trainable(graph)
    check_monitor(graph, classes, given)
    if not labels_fit(graph, given, here):
        raise UserError(
            f"label_hops={given.label_hops}: tokens of {classes.num_classes:,} labels of {graph.num_nodes:,} nodes do "
            f"not fit memory: lower it, or leave it out"
        )
    precision = choose_precision(given, here, begun)
    tokens = choose_tokens(graph, given, store)
    way = choose_way(graph, given, tokens, here, store, begun)
    if store is not None:
        store.refuse_other(graph, tokens)
        refuse_statistics(store, graph, None)
        _warn_of_scales(graph, given, tokens)
    width = tokens.width(graph.num_features)
    model = shape_of(given, width, classes.num_classes, choose_dropout(graph, given, width))
    return Plan(given, tokens, way, model, precision, choose_batch(graph, given))


def labels_fit(graph: Graph, given: TrainConfig, here: Machine) -> bool:
    """Whether memory holds tokens of labels, and a GPU has room for them."""
    num_train = len(graph.splits.get("train", ()))
    needed = label_bytes(graph.num_nodes, num_train, graph.num_classes, given.label_hops)
    return needed <= (min(here.memory, here.room // 2) if here.on_gpu else here.memory)


def _warn_of_scales(graph: Graph, given: TrainConfig, tokens: TokenSettings) -> None:
    """Say it where tokens that were given are not standardized, and those made here would have been."""
    usual = choose_scaling(graph, given)
    if given.feature_scaling is None and tokens.feature_scaling == "none" != usual:
        warnings.warn(
            f"these tokens are not scaled: those of this graph that training makes are; prepare with --feature-scaling "
            f"{usual}, or say --feature-scaling none here",
            stacklevel=4,
        )


def shape_of(settings: TrainConfig, input_dim: int, num_classes: int, feature_dropout: float) -> ModelConfig:
    """The shape of the network for settings and data."""
    return ModelConfig(
        input_dim=input_dim,
        num_classes=num_classes,
        feature_dropout=feature_dropout,
        linear_tokens=settings.hops + 1 if has_companion(settings) else 0,
        num_tokens=settings.hops + 1,
        label_tokens=settings.label_hops,
        **{each.name: getattr(settings, each.name) for each in fields(NetworkConfig)},
    )


def has_companion(settings: TrainConfig) -> bool:
    """Whether a linear classifier is trained along: with a transformer whose hops share one map, and no labels."""
    return settings.linear and settings.network == "transformer" and not settings.own_maps and not settings.label_hops


def check_trainable(graph: Graph) -> Classes:
    """The classes of a graph; refuses one that cannot be trained on."""
    classes = Classes.of(graph)
    assert graph.labels is not None
    for split in ("train", "val"):
        nodes = graph.splits.get(split, np.empty(0, np.int64))
        if len(nodes) == 0:
            raise UserError(
                f"the split {split!r} is empty: name its nodes with graph.with_splits(train=…, val=…, test=…), or in "
                f"the column 'split' of a node table, or draw one with random_split(graph)"
            )
        labeled = len(labeled_among(graph, nodes))
        if not labeled:
            raise UserError(f"none of the {len(nodes):,} {split} nodes has a label: name others, or give them labels")
        if labeled < len(nodes):
            raise UserError(f"{len(nodes) - labeled:,} {split} nodes have no label: leave them out of the split")
    if classes.multi_label:
        return classes
    present = np.bincount(graph.labels[graph.splits["train"]], minlength=classes.num_classes) > 0
    if present.sum() < 2:
        only = name_of(classes.names, int(present.argmax()))
        raise UserError(f"all training nodes have class {only!r}: there is nothing to learn; give at least two classes")
    if not present.all():
        missing = [name_of(classes.names, int(label)) for label in np.flatnonzero(~present)]
        warnings.warn(
            f"{len(missing)} of {classes.num_classes} classes have no training node and can never be predicted: "
            f"{', '.join(missing[:10])}",
            stacklevel=3,
        )
    return classes


def check_monitor(graph: Graph, classes: Classes, given: TrainConfig) -> None:
    """Refuse to watch an area under a curve where the validation nodes have no curve: all are of one class."""
    if given.monitor not in ("roc_auc", "average_precision"):
        return
    labels = classes.targets(graph, graph.splits["val"])
    if (labels == labels[0]).all():
        raise UserError(
            f"monitor={given.monitor!r} needs validation nodes of at least two classes, and these are all of one: give "
            f"others, or leave monitor out"
        )


def choose_precision(given: TrainConfig, here: Machine, begun: Plan | None = None) -> Decided:
    """What was asked for, else what a run was begun with, else bfloat16 where the machine multiplies it faster."""
    if given.precision != "auto":
        return given.precision
    if begun is not None:
        return begun.precision
    return "bf16" if here.fast_bf16 else "fp32"


def choose_tokens(graph: Graph, given: TrainConfig, store: TokenStore | None = None) -> TokenSettings:
    """The settings of tokens, with nothing left open; of tokens that are made already their own."""
    dtype: Dtype = "float16" if store is None else store.tokens.dtype
    return given.tokens(choose_scaling(graph, given, store), dtype, reduce_dim=choose_columns(graph, given, store))


def choose_scaling(graph: Graph, given: TrainConfig, store: TokenStore | None = None) -> Scaling:
    """What was asked for, else what the store has, else measurements are standardized.

    So are marks and counts where training nodes have neighbors of other classes: there a rare mark tells more than the
    mean of a neighborhood. Elsewhere rows of them get one length. For a transformer they stay as they are.
    """
    if given.feature_scaling is not None:
        return given.feature_scaling
    if store is not None:
        return store.tokens.feature_scaling
    if graph.feature_kind is None:
        return "none"
    if graph.feature_kind.measurements:
        return "standardize"
    if given.network == "transformer":
        return "none"
    alike = training_homophily(graph)
    return "standardize" if alike is not None and alike < ALIKE else "length"


def choose_columns(graph: Graph, given: TrainConfig, store: TokenStore | None = None) -> int:
    """To how many columns features are reduced: as many as asked for, where there are more and nodes enough; else 0."""
    if store is not None:
        return store.tokens.reduce_dim
    columns = min(given.reduce_dim, graph.num_nodes)
    return columns if graph.num_features > columns else 0


def choose_batch(graph: Graph, given: TrainConfig) -> int:
    """What was asked for, else an eighth of the training nodes, so that an epoch has some updates, within limits."""
    if given.batch_size is not None:
        return given.batch_size
    return min(max(-(-len(graph.splits["train"]) // UPDATES), SMALLEST_BATCH), LARGEST_BATCH)


def choose_dropout(graph: Graph, given: TrainConfig, width: int) -> float:
    """What was asked for, else: the more columns there are for each training node, the more are hidden."""
    if given.feature_dropout is not None:
        return given.feature_dropout
    columns = min(graph.num_features, width)
    return round(columns / (columns + len(graph.splits["train"])), 3)


def choose_way(
    graph: Graph,
    given: TrainConfig,
    tokens: TokenSettings,
    here: Machine,
    store: TokenStore | None = None,
    begun: Plan | None = None,
) -> Way:
    """The way that was asked for, else that of a run that was begun, else whichever costs less."""
    wanted, sparse = given.project_first, graph.sparse
    if store is not None:
        if wanted == "always":
            raise UserError("project_first='always' makes no use of a token store: give one or the other")
        return "stored"
    if wanted == "always" and not sparse:
        raise UserError("project_first='always' needs sparse features, mostly zeros; these are dense or none")
    if tokens.reduce_dim or given.edge_copies or given.own_maps or given.network != "transformer":
        if wanted == "always":
            raise UserError(
                "project_first='always' is for a transformer whose hops share one map, on tokens that are neither "
                "reduced nor drawn from copies: leave it out, or say network='transformer', own_maps=False, "
                "reduce_dim=0 and edge_copies=0"
            )
        return "stored"
    if wanted != "auto":
        return "projected" if wanted == "always" else "stored"
    if begun is not None:
        return begun.way
    return "projected" if sparse and projecting_pays(graph, given, tokens, here) else "stored"


def projecting_pays(graph: Graph, given: TrainConfig, tokens: TokenSettings, here: Machine) -> bool:
    """Whether an epoch is cheaper when sparse features are projected before the hops than with stored tokens."""
    assert graph.feature_kind is not None
    num_tokens = tokens.hops + 1
    outputs = given.hidden_dim + num_tokens * graph.num_classes * has_companion(given)
    if graph.num_nodes * (tokens.hops + 3) * outputs * 4 > here.room // 2:
        return False
    num_train, num_val = (len(graph.splits[split]) for split in ("train", "val"))
    # forward and backward over the training nodes, forward over the validation nodes
    gathered = (2 * num_train + num_val) * num_tokens * tokens.width(graph.num_features)
    entries = graph.feature_kind.nonzero + tokens.hops * (len(graph.indices) + graph.num_nodes)
    num_updates = -(-num_train // choose_batch(graph, given))
    projected = (2 * num_updates + 1) * entries * outputs * SPARSE_COST[kind(here.device)]
    return projected < gathered * (outputs + GATHER_COST)
