"""What is decided before any work: a list of small functions of settings, graph and machine."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from labeled import LABELS, SEVERAL, graph_with
from small import HERE, class_graph, plan_of, quick, sparse_graph, tokens_of

from nagphormer import UserError, from_scipy, hop_tokens
from nagphormer.device import Machine
from nagphormer.settings import TrainConfig
from nagphormer.training.plan import check_trainable, choose_way, decide

# what can be trained on


def test_a_graph_with_labels_and_both_splits_may_be_trained_on():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_trainable(graph_with([0, 1, 0, 1, -1], train=[0, 1], val=[2]))
        check_trainable(graph_with(SEVERAL, train=[0, 1], val=[2]))


def test_a_graph_without_labels_is_refused():
    with pytest.raises(UserError, match="no labels"):
        check_trainable(graph_with(None, train=[0, 1], val=[2]))


@pytest.mark.parametrize("labels", [LABELS[:5], SEVERAL])
def test_an_empty_or_missing_split_is_refused(labels):
    with pytest.raises(UserError, match="split 'train' is empty"):
        check_trainable(graph_with(labels, val=[1]))
    with pytest.raises(UserError, match="split 'val' is empty"):
        check_trainable(graph_with(labels, train=[0, 4]))
    with pytest.raises(UserError, match="split 'train' is empty"):
        check_trainable(graph_with(labels).with_splits(train=[], val=[1]))


def test_a_node_of_unknown_label_in_a_split_is_refused():
    with pytest.raises(UserError, match="2 train nodes have no label"):
        check_trainable(graph_with([0, 1, -1, -1, 0], train=[0, 1, 2, 3], val=[4]))
    with pytest.raises(UserError, match="1 val nodes have no label"):
        check_trainable(graph_with([0, 1, -1, -1, 0], train=[0, 1], val=[2, 4]))
    with pytest.raises(UserError, match="none of the 2 val nodes has a label"):
        check_trainable(graph_with([0, 1, -1, -1, 0], train=[0, 1], val=[2, 3]))


def test_training_nodes_of_one_class_are_refused_and_the_class_is_named():
    with pytest.raises(UserError, match="all training nodes have class 'red'"):
        check_trainable(graph_with(["red", "red", "blue"], train=[0, 1], val=[2]))
    with pytest.raises(UserError, match="all training nodes have class '0'"):
        check_trainable(graph_with([0, 0, 0], train=[0, 1], val=[2]))


@pytest.mark.parametrize("labels", [["red", "blue", "red", "red"], [[0, 1], [1, 0], [0, 1], [0, 1]]])
def test_no_area_under_a_curve_is_watched_where_the_validation_nodes_are_of_one_class(labels):
    graph = graph_with(labels, train=[0, 1], val=[2, 3])
    for monitor in ("roc_auc", "average_precision"):
        with pytest.raises(UserError, match=f"monitor='{monitor}' needs validation nodes of at least two classes"):
            plan_of(graph, quick(monitor=monitor))
    plan_of(graph, quick(monitor="macro_f1"))
    plan_of(graph_with([*labels[:3], labels[1]], train=[0, 1], val=[2, 3]), quick(monitor="roc_auc"))


def test_classes_without_a_training_node_are_warned_of_by_name():
    graph = graph_with(["a", "b", "c", "d", "a"], train=[0, 1], val=[2])
    with pytest.warns(UserWarning, match="2 of 4 classes have no training node and can never be predicted: c, d"):
        check_trainable(graph)


# the way from features to embedded tokens


def wide_graph():
    """A small graph whose 5,000 features are nearly all zero."""
    features = sp.random_array((200, 5000), density=0.005, rng=np.random.default_rng(0))
    adjacency = sp.random_array((200, 200), density=0.02, rng=np.random.default_rng(1))
    nodes = np.arange(200)
    splits = {"train": nodes[:120], "val": nodes[120:160], "test": nodes[160:]}
    return from_scipy(adjacency, features, nodes % 2, splits)


def way_of(graph, config, here=HERE):
    return choose_way(graph, config, tokens_of(config), here)


WIDE = quick(project_first="auto", batch_size=200, hidden_dim=128)  # 3 tokens


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_projecting_first_pays_for_wide_sparse_features_on_a_small_graph(device):
    assert way_of(wide_graph(), WIDE, Machine(device, 10**10, 2**33, fast_bf16=False)) == "projected"


def test_projecting_first_does_not_pay_for_narrow_or_dense_features():
    assert way_of(class_graph(), WIDE) == "stored"
    assert way_of(class_graph(sparse=True), WIDE) == "stored"
    wide = wide_graph()
    dense = from_scipy(wide.adjacency(), np.ones(wide.features.shape), wide.labels, wide.splits)
    assert way_of(dense, WIDE) == "stored"


def test_projecting_first_does_not_pay_for_many_small_batches():
    assert way_of(wide_graph(), replace(WIDE, batch_size=1)) == "stored"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_projecting_first_does_not_pay_where_it_needs_more_memory_than_there_is(device):
    there_is = {"memory": 10**6, "gpu_memory": 10**10} if device == "cpu" else {"memory": 10**10, "gpu_memory": 10**6}
    assert way_of(wide_graph(), WIDE, Machine(device, **there_is, fast_bf16=False)) == "stored"


def test_the_linear_classifiers_columns_need_memory_too():
    held = 200 * 5 * 128 * 4
    for columns, way in ((6, "projected"), (5, "stored")):  # 3 tokens, 2 classes
        here = replace(HERE, memory=2 * (held + 200 * 5 * columns * 4))
        assert way_of(wide_graph(), WIDE, here) == way
    assert way_of(wide_graph(), replace(WIDE, linear=False), here) == "projected"


def test_a_graph_without_features_is_never_projected():
    graph = from_scipy(wide_graph().adjacency(), None, np.arange(200) % 2, {"train": range(99), "val": [99]})
    assert way_of(graph, quick(project_first="auto")) == "stored"


def test_always_and_never_are_obeyed():
    assert way_of(class_graph(sparse=True), quick(project_first="always")) == "projected"
    assert way_of(wide_graph(), replace(WIDE, project_first="never")) == "stored"
    for features in (np.ones((3, 2)), None):
        with pytest.raises(UserError, match="'always' needs sparse features"):
            way_of(from_scipy(np.ones((3, 3)), features), quick(project_first="always"))


def test_a_store_and_projecting_first_are_one_too_many():
    graph = sparse_graph()
    store = hop_tokens(graph, 2, device="cpu")
    with pytest.raises(UserError, match="give one or the other"):
        plan_of(graph, quick(project_first="always"), store=store)
    assert plan_of(graph, quick(project_first="auto"), store=store).way == "stored"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": 3}, "hops=2, not 3"),
        ({"encoding_dim": 2}, "encoding_dim=0, not 2"),
        ({"feature_scaling": "row"}, "feature_scaling='none', not 'row'"),
    ],
)
def test_a_store_with_other_settings_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        plan_of(sparse_graph(), quick(**changes), store=hop_tokens(sparse_graph(), 2, device="cpu"))


def test_a_store_of_another_graph_is_refused():
    with pytest.raises(UserError, match="another graph"):
        plan_of(sparse_graph(), quick(), store=hop_tokens(sparse_graph(seed=1), 2, device="cpu"))


# what was left open


def test_what_was_given_is_kept_beside_what_was_decided():
    given = quick(precision="auto", project_first="auto", feature_scaling=None, feature_dropout=None)
    plan = plan_of(class_graph(), given)
    assert plan.given == given
    expected = {"precision": "fp32", "project_first": "never", "feature_scaling": "standardize"}
    assert plan.resolved == replace(given, **expected, feature_dropout=round(8 / (8 + 90), 3))


def test_dense_features_are_standardized_unless_told_otherwise():
    assert plan_of(class_graph(), quick(feature_scaling=None)).tokens.feature_scaling == "standardize"
    assert plan_of(sparse_graph(), quick(feature_scaling=None)).tokens.feature_scaling == "standardize"  # few columns
    assert plan_of(wide_graph(), replace(WIDE, feature_scaling=None)).tokens.feature_scaling == "none"
    assert plan_of(class_graph(), quick(feature_scaling="none")).tokens.feature_scaling == "none"


def test_what_is_decided_follows_from_the_numbers_and_not_from_their_container():
    for graph in (class_graph(), wide_graph()):
        features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
        plans = [
            plan_of(
                from_scipy(graph.adjacency(), held, graph.labels, graph.splits), replace(WIDE, feature_scaling=None)
            )
            for held in (features, sp.csr_array(features), features.astype(np.float64))
        ]
        assert plans[0] == plans[1] == plans[2]


def test_a_few_measurements_beside_many_marks_are_standardized():
    marks = np.eye(200)[:, :100]
    for columns, scaling in ((5, "none"), (6, "standardize")):
        features = np.column_stack([marks, *(np.arange(200) + 1.0 for _ in range(columns))])
        graph = from_scipy(wide_graph().adjacency(), features, np.arange(200) % 2, {"train": range(99), "val": [99]})
        assert plan_of(graph, quick(feature_scaling=None)).tokens.feature_scaling == scaling


def test_a_store_brings_its_own_scaling_and_type():
    store = hop_tokens(class_graph(), 2, dtype="bfloat16", feature_scaling="row", device="cpu")
    tokens = plan_of(class_graph(), quick(feature_scaling=None), store=store).tokens
    assert (tokens.feature_scaling, tokens.dtype) == ("row", "bfloat16")


@pytest.mark.parametrize("fast", [False, True])
def test_bfloat16_is_chosen_where_it_is_faster(fast):
    here = replace(HERE, fast_bf16=fast)
    assert plan_of(class_graph(), quick(precision="auto"), here).precision == ("bf16" if fast else "fp32")
    for asked in ("fp32", "bf16"):
        assert plan_of(class_graph(), quick(precision=asked), here).precision == asked


def test_the_network_is_as_wide_as_the_tokens_and_has_a_companion_only_where_asked_for():
    plan = plan_of(class_graph(), quick(encoding_dim=2, linear=True))
    assert (plan.model.input_dim, plan.model.num_classes, plan.model.linear_tokens) == (10, 3, 3)
    assert plan_of(class_graph(), quick(linear=False)).model.linear_tokens == 0
    bare = from_scipy(class_graph().adjacency(), None, class_graph().labels, class_graph().splits)
    assert plan_of(bare, quick(encoding_dim=2)).model.input_dim == 3


def test_a_run_that_was_begun_keeps_what_it_chose_on_another_machine():
    given = replace(WIDE, precision="auto")
    first = plan_of(wide_graph(), given)
    elsewhere = Machine("cpu", memory=0, gpu_memory=0, fast_bf16=True)
    fresh = plan_of(wide_graph(), given, elsewhere)
    assert (first.way, first.precision) == ("projected", "fp32")
    assert (fresh.way, fresh.precision) == ("stored", "bf16")
    assert decide(wide_graph(), given, elsewhere, begun=first) == first
    assert decide(wide_graph(), given, HERE, begun=fresh) == fresh


def test_another_graph_with_dense_features_is_not_projected():
    plan, wide = plan_of(wide_graph(), WIDE), wide_graph()
    assert plan.way_for(wide) == "projected"
    assert (
        plan.way_for(from_scipy(wide.adjacency(), wide.features.toarray())) == "projected"
    )  # mostly zeros all the same
    assert plan.way_for(from_scipy(wide.adjacency(), np.ones(wide.features.shape))) == "stored"
    assert plan_of(class_graph(), quick()).way_for(wide) == "stored"


def marked(alike, num_nodes=200):
    """Features of marks, on pairs of nodes whose labels are equal or not."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], num_nodes // 2)
    one, other = rng.integers(0, num_nodes // 2, (2, 4 * num_nodes))
    ends = (one, other if alike else other + num_nodes // 2)
    edges = sp.coo_array((np.ones(4 * num_nodes, bool), ends), shape=(num_nodes, num_nodes))
    return from_scipy(edges, (rng.random((num_nodes, 100)) < 0.05).astype(float), labels).with_splits(
        train=np.arange(0, num_nodes, 2), val=np.arange(1, num_nodes, 4), test=np.arange(3, num_nodes, 4)
    )


@pytest.mark.parametrize(
    ("graph", "network", "scaling"),
    [
        (class_graph(), "mlp", "standardize"),  # measurements
        (class_graph(), "transformer", "standardize"),
        (marked(alike=True), "mlp", "length"),
        (marked(alike=True), "linear", "length"),
        (marked(alike=False), "mlp", "standardize"),
        (marked(alike=False), "transformer", "none"),
        (from_scipy(marked(True).adjacency(), None, marked(True).labels, marked(True).splits), "mlp", "none"),
    ],
)
def test_features_are_scaled_by_what_they_are_and_by_what_neighbors_are(graph, network, scaling):
    given = TrainConfig(network=network)
    assert decide(graph, given, HERE).tokens.feature_scaling == scaling
    assert decide(graph, replace(given, feature_scaling="row"), HERE).tokens.feature_scaling == "row"


@pytest.mark.parametrize("alike", [False, True])
def test_nothing_is_decided_by_labels_of_validation_and_test_nodes(alike):
    graph = marked(alike)
    labels = graph.labels.copy()
    for split in ("val", "test"):
        labels[graph.splits[split]] = 1 - labels[graph.splits[split]]
    assert decide(replace(graph, labels=labels), TrainConfig(), HERE) == decide(graph, TrainConfig(), HERE)


@pytest.mark.parametrize(
    ("num_train", "size"), [(20, 16), (128, 16), (129, 17), (1000, 125), (8000, 1000), (9000, 1000)]
)
def test_an_epoch_has_eight_updates_where_batches_may_be_so_small_or_large(num_train, size):
    labels = np.arange(num_train + 2) % 2
    graph = graph_with(labels, train=np.arange(num_train), val=[num_train])
    assert decide(graph, TrainConfig(), HERE).batch_size == size
    assert decide(graph, TrainConfig(batch_size=7), HERE).batch_size == 7


def test_tokens_that_lack_the_usual_scaling_are_said_to():
    graph = class_graph()  # measurements
    plain, scaled = (hop_tokens(graph, 3, feature_scaling=scaling, device="cpu") for scaling in ("none", "standardize"))
    with pytest.warns(UserWarning, match="these tokens are not scaled: .* --feature-scaling standardize"):
        decide(graph, TrainConfig(), HERE, plain)
    with pytest.warns(UserWarning, match="these tokens are not scaled: .* --feature-scaling length"):
        decide(marked(alike=True), TrainConfig(), HERE, hop_tokens(marked(alike=True), 3, device="cpu"))
    for given, store in ((TrainConfig(feature_scaling="none"), plain), (TrainConfig(), scaled)):
        with warnings.catch_warnings(action="error"):
            decide(graph, given, HERE, store)
