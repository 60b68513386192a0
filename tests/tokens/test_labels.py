"""Labels of training nodes as tokens: what is averaged, and that nobody ever reads their own."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import hop_tokens, path_graph, random_adjacency, star_graph

from nagphormer import Graph, NodeClassifier, TrainConfig, UserError, from_scipy, random_split, synthetic_graph
from nagphormer.device import Machine
from nagphormer.tokens.labels import PARTS, ROUNDS, Shown, label_bytes, label_tokens
from nagphormer.training.plan import decide

HOPS = 3
SMALL = {"hops": 1, "hidden_dim": 32, "epochs": 40, "device": "cpu", "precision": "fp32", "label_hops": 2}


def labeled_graph(num_nodes=40, num_classes=3, seed=0, weighted=False, several=False, **parts):
    """Random edges and labels, some nodes isolated, split 60/20/20."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, num_nodes)
    labels[:num_classes] = np.arange(num_classes)
    if several:
        labels = (rng.random((num_nodes, num_classes)) < 0.4).astype(np.int64)
    adjacency = random_adjacency(num_nodes, seed, weighted=weighted)
    return random_split(from_scipy(adjacency, rng.standard_normal((num_nodes, 4)), labels, **parts), seed=seed)


def with_labels(graph, labels):
    return replace(graph, labels=labels)


def tokens_of(graph, hops=HOPS, seed=0):
    shown = Shown.of(graph)
    return label_tokens(graph, shown.nodes, shown.labels, graph.num_classes, hops, seed)


def shares(graph, nodes, num_classes, hops=HOPS):
    """ÂᵏY / Âᵏ1 of the labels of some nodes in float64, 0 where none arrives, (N, L, C)."""
    labels = graph.labels if graph.labels.ndim == 2 else np.eye(num_classes)[graph.labels]
    known = np.zeros((graph.num_nodes, 1))
    known[nodes] = 1
    own = hop_tokens(graph, hops, labels * known)[:, 1:]
    reached = hop_tokens(graph, hops, known)[:, 1:]
    return np.divide(own, reached, out=np.zeros_like(own), where=reached > 0)


def others_than(labels, node):
    """The labels, but for one node's: all other classes, or all other sets of labels."""
    changed = labels.copy()
    changed[node] = 1 - labels[node] if labels.ndim == 2 else (labels[node] + 1) % (labels.max() + 1)
    return changed


# what they are


def test_on_a_path_by_hand():
    graph = path_graph(4, labels=[0, 1, 0, 0], splits={"train": [0, 1], "val": [2], "test": [3]})
    tokens = tokens_of(graph, hops=2)
    # d̃ = 2, 3, 3, 2: at node 2 nothing but 1 arrives in one hop, at node 3 nothing at all
    assert tokens.whole[2, 0].tolist() == [0, 1]
    assert tokens.whole[3, 0].tolist() == [0, 0]
    # in two hops 0 comes to node 2 by node 1, and 1 by node 1 and by node 2
    arrives = np.array([1 / (np.sqrt(2) * 3 * np.sqrt(3)), (1 / 3 + 1 / 3) / 3])
    np.testing.assert_allclose(tokens.whole[2, 1], arrives / arrives.sum(), atol=1e-3)
    assert tokens.whole[3, 1].tolist() == [0, 1]
    # each reads the other's label where they are dealt into two parts, and two nodes always are
    assert tokens.whole[0].tolist() == [[0, 1]] * 2
    assert tokens.whole[1].tolist() == [[1, 0]] * 2


@pytest.mark.parametrize("num_classes", [2, 5, 16, 17, 40])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_other_nodes_read_the_shares_of_all_training_labels(num_classes, several, weighted):
    graph = labeled_graph(60, num_classes, weighted=weighted, several=several)
    others = np.setdiff1d(np.arange(60), graph.splits["train"])
    expected = shares(graph, graph.splits["train"], num_classes)
    np.testing.assert_allclose(tokens_of(graph).whole[others], expected[others], atol=1e-3)
    assert expected[others].any()


@pytest.mark.parametrize("num_classes", [3, 40])
@pytest.mark.parametrize("several", [False, True])
def test_in_every_round_a_training_node_reads_the_part_it_is_not_in(num_classes, several):
    graph = labeled_graph(60, num_classes, weighted=True, several=several)
    nodes, tokens, draw = graph.splits["train"], tokens_of(graph, seed=5), np.random.default_rng([5, 1])
    for round_ in tokens.rounds:
        dealt = draw.permutation(len(nodes))
        for part in range(PARTS):
            reading = dealt[part::PARTS]
            expected = shares(graph, np.delete(nodes, reading), num_classes)[nodes[reading]]
            np.testing.assert_allclose(round_[reading], expected, atol=1e-3)


def test_a_training_node_is_used_with_the_mean_of_its_rounds():
    graph = labeled_graph()
    tokens, nodes = tokens_of(graph), graph.splits["train"]
    assert tokens.rounds.shape == (ROUNDS, len(nodes), HOPS, 3)
    np.testing.assert_allclose(tokens.whole[nodes], tokens.rounds.astype(np.float64).mean(axis=0), atol=1e-3)
    np.testing.assert_array_equal(nodes[tokens.place[nodes]], nodes)


def test_rounds_differ_and_a_seed_repeats_them():
    graph = labeled_graph()
    one, same, other = (tokens_of(graph, seed=seed).rounds for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert len({round_.tobytes() for round_ in one}) == ROUNDS


def test_an_isolated_node_reads_nothing():
    graph = from_scipy(sp.csr_array((6, 6)), labels=[0, 1, 0, 1, 0, 1], splits={"train": [0, 1, 2], "val": [3]})
    tokens = tokens_of(graph)
    assert not tokens.whole.any()
    assert not tokens.rounds.any()


@pytest.mark.parametrize("train", [[0], [0, 3]])
def test_one_training_node_or_two_are_enough(train):
    graph = star_graph(4, labels=[1, 0, 0, 1, 0], splits={"train": train, "val": [1]})
    tokens = tokens_of(graph)
    assert np.isfinite(tokens.whole).all()
    assert tokens.whole[2, 0].tolist() == [0, 1]
    if len(train) == 1:
        assert not tokens.whole[0].any()


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.booleans())
def test_permuting_nodes_permutes_tokens(seed, weighted):
    graph = labeled_graph(seed=seed % 7, weighted=weighted)
    shown, order = Shown.of(graph), np.random.default_rng(seed).permutation(graph.num_nodes)
    turned = from_scipy(graph.adjacency()[order][:, order])
    place = np.argsort(order)
    ours = label_tokens(graph, shown.nodes, shown.labels, 3, HOPS, 0)
    theirs = label_tokens(turned, place[shown.nodes], shown.labels, 3, HOPS, 0)
    np.testing.assert_allclose(theirs.whole[place], ours.whole, atol=2e-3)
    np.testing.assert_allclose(theirs.rounds, ours.rounds, atol=2e-3)


@pytest.mark.parametrize(("num_classes", "hops"), [(3, 1), (40, 3)])
def test_their_bytes_are_known_before(num_classes, hops):
    graph = labeled_graph(400, num_classes)
    tokens, known = tokens_of(graph, hops), label_bytes(400, 240, num_classes, hops)
    kept = tokens.whole.nbytes + tokens.rounds.nbytes
    assert kept < known < kept + 400 * 200
    assert label_bytes(400, 240, num_classes, 0) == 0


def test_labels_that_do_not_fit_memory_are_refused_before_any_work():
    graph = labeled_graph(400, 10)
    needed = label_bytes(400, 240, 10, 3)
    for here in (Machine("cpu", needed - 1, 0, False), Machine("cuda", 10**9, 2 * needed - 2, False)):
        with pytest.raises(
            UserError, match="label_hops=3: tokens of 10 labels of 400 nodes do not fit memory: lower it"
        ):
            decide(graph, TrainConfig(label_hops=3), here)
        decide(graph, TrainConfig(), here)
    decide(graph, TrainConfig(label_hops=3), Machine("cpu", needed, 0, False))


# that they do not leak


PAIR = sp.coo_array((np.ones(1), ([0], [1])), shape=(6, 6))
GRAPHS = {
    "random": labeled_graph(),
    "weighted": labeled_graph(weighted=True, seed=2),
    "forty classes": labeled_graph(60, 40),
    "several labels": labeled_graph(several=True),
    "twenty labels": labeled_graph(60, 20, several=True, weighted=True),
    "its own neighbor's only neighbor": from_scipy(PAIR, labels=[0, 1, 1, 0, 1, 0], splits={"train": [0, 2, 3]}),
    "both of a pair": from_scipy(PAIR, labels=[0, 1, 1, 0, 1, 0], splits={"train": [0, 1, 2, 3]}),
    "complete": from_scipy(np.ones((12, 12)), labels=np.arange(12) % 3, splits={"train": np.arange(9)}),
    "loops": from_scipy(np.eye(8) + np.eye(8, k=1), labels=np.arange(8) % 2, splits={"train": np.arange(7)}),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_no_node_ever_reads_its_own_label(name):
    graph = GRAPHS[name]
    before = tokens_of(graph, hops=4)
    seen_by_others = 0
    for row, node in enumerate(graph.splits["train"]):
        after = tokens_of(with_labels(graph, others_than(graph.labels, node)), hops=4)
        assert np.array_equal(after.rounds[:, row], before.rounds[:, row])
        assert np.array_equal(after.whole[node], before.whole[node])
        seen_by_others += not np.array_equal(after.whole, before.whole)
    assert seen_by_others > 0  # or nothing was looked at


@pytest.mark.parametrize("name", GRAPHS)
def test_labels_of_other_nodes_are_not_looked_at(name):
    graph = GRAPHS[name]
    garbage = np.full_like(graph.labels, 0 if graph.labels.ndim == 2 else -1)
    garbage[graph.splits["train"]] = graph.labels[graph.splits["train"]]
    ours, theirs = (Shown.of(each) for each in (graph, with_labels(graph, garbage)))
    ours, theirs = (label_tokens(graph, each.nodes, each.labels, graph.num_classes, HOPS, 0) for each in (ours, theirs))
    assert np.array_equal(ours.whole, theirs.whole)
    assert np.array_equal(ours.rounds, theirs.rounds)


@pytest.mark.parametrize("edge_copies", [0, 2])
def test_random_labels_are_not_learned(edge_copies):
    rng = np.random.default_rng(3)
    drawn = synthetic_graph(2000, 3000, 4, 2, seed=1)
    graph = random_split(from_scipy(drawn.adjacency(), rng.standard_normal((2000, 4)), rng.integers(0, 2, 2000)))
    clf = NodeClassifier(**SMALL, edge_copies=edge_copies).fit(graph)
    deviation = 0.5 / np.sqrt(len(graph.splits["test"]))
    assert abs(clf.score(graph) - 0.5) < 3 * deviation
    assert abs(clf.score(graph, "val") - 0.5) < 0.08
    assert clf.score(graph, "train") < 0.6  # 0.91 where nodes read their own


def test_labels_that_neighbors_share_are_learned():
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    chain = sp.diags_array(np.ones(297), offsets=3, shape=(300, 300))  # three paths, each of one class
    graph = random_split(from_scipy(chain, rng.standard_normal((300, 4)), labels))
    assert NodeClassifier(**SMALL).fit(graph).score(graph) > 0.9
    assert NodeClassifier(**SMALL | {"label_hops": 0}).fit(graph).score(graph) < 0.7


# in another graph


def named(seed=0) -> Graph:
    return labeled_graph(seed=seed, node_ids=[f"n{number}" for number in range(40)])


def test_nodes_are_found_by_their_ids_in_any_order():
    graph = named()
    turned = graph.subgraph(np.random.default_rng(0).permutation(40))
    nodes, labels = Shown.of(graph).in_graph(turned, same=False)
    assert turned.node_ids[nodes].tolist() == graph.node_ids[graph.splits["train"]].tolist()
    assert labels.tolist() == graph.labels[graph.splits["train"]].tolist()
    ours, theirs = tokens_of(graph), label_tokens(turned, nodes, labels, 3, HOPS, 0)
    place = np.argsort([int(name[1:]) for name in turned.node_ids])
    np.testing.assert_allclose(theirs.whole[place], ours.whole, atol=2e-3)


def test_nodes_that_are_not_there_are_left_out():
    graph = named()
    train = graph.splits["train"]
    part = graph.subgraph(np.setdiff1d(np.arange(40), train[:5]))
    nodes, labels = Shown.of(graph).in_graph(part, same=False)
    assert part.node_ids[nodes].tolist() == graph.node_ids[train[5:]].tolist()
    assert labels.tolist() == graph.labels[train[5:]].tolist()


def test_labels_of_the_other_graph_are_not_looked_at():
    graph = named()
    part = graph.subgraph(np.arange(35))
    nodes, labels = Shown.of(graph).in_graph(with_labels(part, np.zeros(35, np.int64)), same=False)
    known = graph.splits["train"][graph.splits["train"] < 35]
    assert nodes.tolist() == known.tolist()
    assert labels.tolist() == graph.labels[known].tolist()


def test_ids_that_are_numbers_here_and_text_there_are_the_same():
    numbers = labeled_graph(node_ids=np.arange(100, 140))
    texts = from_scipy(sp.csr_array((41, 41)), node_ids=[*map(str, range(139, 99, -1)), "new"])
    nodes, _ = Shown.of(numbers).in_graph(texts, same=False)
    assert nodes.tolist() == (39 - numbers.splits["train"]).tolist()


def test_a_graph_with_few_of_the_nodes_is_refused():
    graph = named()
    train = graph.splits["train"]
    rest = np.setdiff1d(np.arange(40), train)
    enough, few = (graph.subgraph(np.append(rest, train[:count])) for count in (12, 11))
    shown = Shown.of(graph)
    assert (shown.known_in(enough), shown.known_in(few)) == (True, False)
    with pytest.raises(UserError, match=r"has 11 of the 24: train with label_hops=0 for a model that moves"):
        shown.in_graph(few, same=False)


def test_a_model_refuses_a_graph_of_strangers_and_takes_a_part_of_its_own():
    graph = named()
    clf = NodeClassifier(**SMALL | {"epochs": 2}).fit(graph)
    assert clf.predict(graph.subgraph(np.arange(35))).shape == (35,)
    strangers = labeled_graph(seed=2, node_ids=[f"x{number}" for number in range(40)])
    with pytest.raises(UserError, match="this graph has 0 of the 24"):
        clf.predict(strangers)


# in a run folder


@pytest.mark.parametrize("graph", [labeled_graph(), named(), labeled_graph(several=True)])
def test_what_is_shown_comes_back(graph, tmp_path):
    shown = Shown.of(graph)
    shown.write(tmp_path)
    found = Shown.read(tmp_path)
    assert np.array_equal(found.nodes, shown.nodes)
    assert np.array_equal(found.labels, shown.labels)
    assert (found.ids is None and shown.ids is None) or found.ids.equals(shown.ids)


def test_a_folder_without_labels_has_none(tmp_path):
    assert Shown.read(tmp_path) is None


def test_damaged_labels_are_refused(tmp_path):
    Shown.of(named()).write(tmp_path)
    (tmp_path / "labels.safetensors").write_bytes(b"\x80\x04.")
    with pytest.raises(UserError, match=r"labels\.safetensors or the ids beside it are damaged"):
        Shown.read(tmp_path)


def test_labels_and_ids_of_two_runs_are_refused(tmp_path):
    Shown.of(labeled_graph(60, node_ids=range(60))).write(tmp_path)
    Shown.of(labeled_graph()).write(tmp_path)
    with pytest.raises(UserError, match=r"damaged \(nodes, labels and ids are not as many\)"):
        Shown.read(tmp_path)


def test_a_run_that_was_carried_without_its_labels_says_so(tmp_path):
    graph = named()
    clf = NodeClassifier(**SMALL | {"epochs": 2}).fit(graph)
    clf.save(tmp_path / "run")
    expected = clf.predict_proba(graph)
    assert np.array_equal(NodeClassifier.load(tmp_path / "run").predict_proba(graph), expected)
    (tmp_path / "run" / "labels.safetensors").unlink()
    with pytest.raises(UserError, match=r"carried here without labels\.safetensors"):
        NodeClassifier.load(tmp_path / "run").predict_proba(graph)
