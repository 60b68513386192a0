import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from nagphormer import UserError, from_scipy
from nagphormer.data.graph import from_edges

PATH = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def edges_of(graph):
    """Every stored entry as (source, target, weight)."""
    matrix = graph.adjacency().tocoo()
    return sorted(zip(matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(), strict=True))


def coo(entries, num_nodes=4, dtype=np.float64):
    source, target, values = zip(*entries, strict=True)
    return sp.coo_array((np.array(values, dtype), (source, target)), shape=(num_nodes, num_nodes))


# Edges


def test_a_path_of_four_by_hand():
    graph = from_scipy(PATH, X)
    assert graph.indptr.tolist() == [0, 1, 3, 5, 6]
    assert graph.indices.tolist() == [1, 0, 2, 1, 3, 2]
    assert (graph.indptr.dtype, graph.indices.dtype) == (np.int64, np.int32)
    assert graph.weights is None
    assert graph.degrees.tolist() == [1, 2, 2, 1]
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (4, 3, 3, 0)


def test_directed_edges_become_undirected():
    graph = from_scipy(coo([(0, 1, 1), (2, 1, 1)]))
    assert edges_of(graph) == [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 1, 1)]
    assert graph.weights is None


def test_self_loops_are_dropped():
    assert edges_of(from_scipy(coo([(0, 0, 5), (0, 1, 1), (2, 2, 1)]))) == [(0, 1, 1), (1, 0, 1)]
    assert edges_of(from_edges(np.array([0, 1]), np.array([0, 2]), 3)) == [(1, 2, 1), (2, 1, 1)]


def test_weights_of_repeated_entries_are_summed():
    assert edges_of(from_scipy(coo([(0, 1, 2), (0, 1, 3)]))) == [(0, 1, 5), (1, 0, 5)]


def test_of_both_directions_the_larger_weight_is_kept():
    assert edges_of(from_scipy(coo([(0, 1, 2), (1, 0, 7)]))) == [(0, 1, 7), (1, 0, 7)]


def test_repeats_are_summed_before_directions_are_compared():
    graph = from_scipy(coo([(0, 1, 2), (0, 1, 3), (1, 0, 4), (2, 3, 1)]))
    assert edges_of(graph) == [(0, 1, 5), (1, 0, 5), (2, 3, 1), (3, 2, 1)]
    assert graph.weights.dtype == np.float32


def test_edge_lists_follow_the_same_rules():
    source, target = np.array([0, 0, 1, 2]), np.array([1, 1, 0, 3])
    weighted = from_edges(source, target, 4, np.array([2, 3, 4, 1.0]))
    assert edges_of(weighted) == [(0, 1, 5), (1, 0, 5), (2, 3, 1), (3, 2, 1)]
    plain = from_edges(source, target, 4)
    assert edges_of(plain) == [(0, 1, 1), (1, 0, 1), (2, 3, 1), (3, 2, 1)]
    assert plain.weights is None


def test_duplicates_without_weights_stay_without_weights():
    assert from_scipy(coo([(0, 1, True), (0, 1, True), (1, 0, True)], dtype=bool)).weights is None


def test_edges_of_weight_zero_are_no_edges():
    assert from_scipy(coo([(0, 1, 0), (1, 2, 1)])).num_edges == 1
    assert from_scipy(coo([(0, 1, 1e-60), (1, 2, 0.5)])).num_edges == 1  # zero in float32


def test_many_repeats_of_a_narrow_integer_do_not_wrap_around():
    repeats = sp.coo_array((np.full(300, 2, np.int8), (np.zeros(300, int), np.ones(300, int))), shape=(4, 4))
    assert edges_of(from_scipy(repeats)) == [(0, 1, 600), (1, 0, 600)]


@pytest.mark.parametrize("ones", [np.ones(3), np.ones(3, bool), np.ones(3, np.int8)])
@pytest.mark.parametrize("kind", ["coo_array", "csr_array", "csc_array"])
def test_a_list_of_edges_counts_one_that_is_there_twice_once(kind, ones):
    source, target = np.array([0, 0, 1]), np.array([1, 1, 2])
    if kind == "coo_array":
        matrix = sp.coo_array((ones, (source, target)), shape=(4, 4))
    else:  # by rows or columns, the entry is there twice, too
        indptr = {"csr_array": [0, 2, 3, 3, 3], "csc_array": [0, 0, 2, 3, 3]}[kind]
        indices = {"csr_array": target, "csc_array": source}[kind]
        matrix = getattr(sp, kind)((ones, indices, np.array(indptr)), shape=(4, 4))
    graph = from_scipy(matrix)
    assert graph.weights is None
    assert edges_of(graph) == edges_of(from_edges(source, target, 4))
    assert graph.fingerprint == from_edges(source, target, 4).fingerprint


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_array", "lil_array", "dok_array", "csr_matrix"])
def test_every_kind_of_sparse_matrix_gives_the_same_graph(kind):
    graph = from_scipy(getattr(sp, kind)(np.triu(PATH) * 2.0))
    assert edges_of(graph) == edges_of(from_scipy(PATH * 2.0))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 9)), max_size=30))
def test_any_edges_give_a_symmetric_sorted_adjacency_without_loops(entries):
    dense = np.zeros((7, 7))
    for source, target, weight in entries:
        dense[source, target] += weight
    np.fill_diagonal(dense, 0)
    source, target, weights = np.array(entries).reshape(-1, 3).T
    graph = from_edges(source, target, 7, weights.astype(float))
    np.testing.assert_array_equal(graph.adjacency().toarray(), np.maximum(dense, dense.T))
    for node in range(7):
        assert (np.diff(graph.indices[graph.indptr[node] : graph.indptr[node + 1]]) > 0).all()


@pytest.mark.parametrize("read_only", [False, True])
def test_the_callers_arrays_are_left_alone(read_only):
    # unsorted, with a duplicate and a self-loop
    parts = [np.array([1.0, 2, 3, 4, 5], np.float32), np.array([3, 1, 1, 1, 0]), np.array([0, 3, 4, 4, 5])]
    before = [part.copy() for part in parts]
    for part in parts:
        part.flags.writeable = not read_only
    matrix = sp.csr_array(tuple(parts), shape=(4, 4))
    graph = from_scipy(matrix, features=matrix)
    assert edges_of(graph) == [(0, 1, 5), (0, 3, 5), (1, 0, 5), (3, 0, 5)]
    np.testing.assert_array_equal(graph.features.toarray(), [[0, 5, 0, 1], [0, 4, 0, 0], [0] * 4, [5, 0, 0, 0]])
    for part, old in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part, old)


def test_a_graph_may_have_no_edges():
    graph = from_scipy(sp.csr_array((3, 3)))
    assert (graph.num_nodes, graph.num_edges, graph.weights) == (3, 0, None)


def test_an_empty_graph_is_refused():
    with pytest.raises(UserError, match="the graph is empty"):
        from_scipy(np.zeros((0, 0)))
    with pytest.raises(UserError, match="the graph is empty"):
        from_edges(np.array([], int), np.array([], int), 0)


def test_an_adjacency_that_is_not_square_is_refused_with_its_shape():
    with pytest.raises(UserError, match="must be square, but it is 2 × 3"):
        from_scipy(np.ones((2, 3)))
    with pytest.raises(UserError, match="must be square, but it is 3 × 4"):
        from_scipy(sp.csr_array((3, 4)))


@pytest.mark.parametrize(("source", "target", "bad"), [([0, -1], [1, 2], "source -1"), ([0, 1], [1, 4], "target 4")])
def test_edge_ids_out_of_range_are_named(source, target, bad):
    with pytest.raises(UserError, match=rf"edge 1 has {bad}, but the graph has 4 nodes \(0 to 3\)"):
        from_edges(np.array(source), np.array(target), 4)


@pytest.mark.parametrize("bad", [500_000, -1])
def test_sparse_matrices_with_indices_out_of_range_are_refused(bad):
    broken = sp.csr_array((np.ones(2), np.array([1, 0]), np.array([0, 1, 2])), shape=(2, 2))
    broken.indices[1] = bad
    with pytest.raises(UserError, match="the adjacency is not a valid sparse matrix"):
        from_scipy(broken)
    with pytest.raises(UserError, match="the feature matrix is not a valid sparse matrix"):
        from_scipy(sp.eye_array(2), features=broken)


@pytest.mark.parametrize("adjacency", ["cora", None, [[0, 1], [1]], np.array([["a", "b"], ["b", "a"]])])
def test_an_adjacency_that_is_no_matrix_of_numbers_is_refused(adjacency):
    with pytest.raises(UserError, match=r"the adjacency (must be a matrix of numbers|cannot be read)"):
        from_scipy(adjacency)


def test_a_sparse_tensor_is_an_adjacency():
    torch = pytest.importorskip("torch")
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [1, 1, 2]]), torch.ones(3), (3, 3))
    assert from_scipy(twice).weights is None  # an edge that is there twice counts once
    assert from_scipy(torch.eye(3).to_sparse_csr()).num_edges == 0


def test_edge_arrays_of_different_lengths_are_refused():
    with pytest.raises(UserError, match=r"differ in length: \[2, 3\]"):
        from_edges(np.array([0, 1]), np.array([1, 2, 3]), 4)
    with pytest.raises(UserError, match=r"differ in length: \[2, 2, 1\]"):
        from_edges(np.array([0, 1]), np.array([1, 2]), 4, np.array([1.0]))


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_weights_must_be_finite_and_not_negative(weight):
    with pytest.raises(UserError, match=f"has weight {weight}: weights must be finite and not negative"):
        from_scipy(coo([(0, 1, 1.0), (1, 2, weight)]))
    with pytest.raises(UserError, match=f"edge 1 has weight {weight}"):
        from_edges(np.array([0, 1]), np.array([1, 2]), 4, np.array([1.0, weight]))


def test_complex_weights_are_refused():
    with pytest.raises(UserError, match="must be real numbers, not complex128"):
        from_scipy(coo([(0, 1, 1j)], dtype=complex))


# Features


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_features_of_working_precision_are_kept_without_a_copy(dtype):
    features = X.astype(dtype)
    assert np.shares_memory(from_scipy(PATH, features).features, features)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, bool, ">f4"])
def test_other_numbers_become_float32(dtype):
    graph = from_scipy(PATH, X.astype(dtype))
    assert graph.features.dtype == np.float32
    np.testing.assert_array_equal(graph.features, X.astype(dtype).astype(np.float32))


def test_sparse_features_stay_sparse():
    graph = from_scipy(PATH, sp.coo_array(X.astype(np.float64)))
    assert isinstance(graph.features, sp.csr_array)
    assert graph.features.dtype == np.float32
    assert graph.num_features == 3
    np.testing.assert_array_equal(graph.features.toarray(), X)


def test_features_without_columns_are_no_features():
    for empty in (np.zeros((4, 0)), sp.csr_array((4, 0))):
        assert from_scipy(PATH, empty).features is None


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_features_of_another_length_are_refused_with_both_numbers(kind):
    with pytest.raises(UserError, match="features has 3 rows but the graph has 4 nodes: is an isolated node left out"):
        from_scipy(PATH, kind(X[:3]))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_named(kind, value):
    features = X.copy()
    features[2, 1] = value
    with pytest.raises(UserError, match=f"feature 1 of node 2 is {value}: features must be finite"):
        from_scipy(PATH, kind(features))


def test_features_beyond_float32_are_refused():
    with np.errstate(over="ignore"), pytest.raises(UserError, match="feature 0 of node 1 is inf"):
        from_scipy(PATH, np.array([[1.0], [1e300], [1.0], [1.0]]))


def test_features_must_be_numbers_in_two_dimensions():
    with pytest.raises(UserError, match=r"two dimensions \(nodes, features\), not shape \(4,\)"):
        from_scipy(PATH, np.ones(4))
    with pytest.raises(UserError, match="features must be numbers, not <U1"):
        from_scipy(PATH, np.full((4, 2), "a"))


# Labels, splits, ids


def test_integer_labels_are_kept_with_minus_one_for_unknown():
    graph = from_scipy(PATH, labels=np.array([2, -1, 0, 2], np.int8))
    assert graph.labels.tolist() == [2, -1, 0, 2]
    assert graph.labels.dtype == np.int64
    assert graph.num_classes == 3
    assert graph.class_names is None


def test_whole_floats_and_booleans_are_labels():
    assert from_scipy(PATH, labels=[1.0, 0.0, -1.0, 2.0]).labels.tolist() == [1, 0, -1, 2]
    assert from_scipy(PATH, labels=[True, False, True, True]).labels.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("missing", [None, "", float("nan"), "-1", -1])
def test_text_labels_become_sorted_class_names(missing):
    graph = from_scipy(PATH, labels=np.array(["pear", missing, "apple", "pear"], object))
    assert graph.class_names == ("apple", "pear")
    assert graph.labels.tolist() == [1, -1, 0, 1]


def test_class_names_may_be_given():
    graph = from_scipy(PATH, labels=[0, 1, 0, -1], class_names=["no", "yes", "never seen"])
    assert graph.class_names == ("no", "yes", "never seen")
    assert graph.num_classes == 3


def test_multi_label_matrices_are_kept():
    graph = from_scipy(PATH, labels=np.eye(4)[:, :2], class_names=["a", "b"])
    assert graph.labels.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
    assert graph.num_classes == 2


def test_a_graph_whose_labels_are_all_unknown_has_no_classes():
    assert from_scipy(PATH, labels=[-1] * 4).num_classes == 0


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([0, 1, 0], None, "labels has 3 entries but the graph has 4 nodes"),
        ([0, 1, -2, 0], None, "label -2 is negative"),
        ([0, 0.5, 1, 1], None, "whole numbers"),
        ([-2, None, 1, 1], None, "label -2.0 is negative"),
        ([0, 2**40, 1, 1], None, "label 1099511627776 is too large a number"),
        (np.array([0, 2**64 - 3, 1, 1], np.uint64), None, "label 18446744073709551613 is too large"),
        ([0, 1j, 1, 1], None, "labels must be"),
        ({0: 1}, None, "labels must be one for every node.*not dict"),
        ("cora", None, "labels must be one for every node.*not str"),
        (3, None, "labels must be"),
        (np.full((4, 2), "a"), None, "a matrix of 0 and 1 for several"),
        (np.array([b"\xe9", b"a", b"a", b"b"]), None, "bytes that are no UTF-8"),
        (["a", {}, "b", "a"], None, "label {} is neither a number nor text"),
        (["a", "b", "c", "a"], ["a", "b"], "label 'c' is none of the class_names: 'a', 'b'"),
        ([0, np.inf, 1, 1], None, "whole numbers"),
        ([[0, 1], [2, 0], [1, 0], [0, 0]], None, "multi-label and must hold 0 and 1"),
        (np.zeros((4, 1, 1)), None, "shape (4, 1, 1) and type float64"),
        ([0, 1, 2, 0], ["a", "b"], "labels need 3 classes but class_names has 2"),
        (np.eye(4), ["a", "b"], "labels need 4 classes but class_names has 2"),
        (np.eye(4), list("abcde"), "labels need 4 classes but class_names has 5"),
    ],
)
def test_wrong_labels_are_refused(labels, names, message):
    with pytest.raises(UserError, match=message.replace("(4, 1, 1)", r"\(4, 1, 1\)")):
        from_scipy(PATH, labels=labels, class_names=names)


def test_splits_are_positions_or_masks_and_come_back_sorted():
    graph = from_scipy(PATH, splits={"train": [2, 0], "val": np.array([False, True, False, False]), "test": []})
    assert {split: nodes.tolist() for split, nodes in graph.splits.items()} == {"train": [0, 2], "val": [1], "test": []}
    assert all(nodes.dtype == np.int64 for nodes in graph.splits.values())


def test_with_splits_replaces_splits_and_leaves_the_graph_alone():
    graph = from_scipy(PATH, X, splits={"train": [0]})
    other = graph.with_splits(train=[1], test=[2])
    assert list(other.splits) == ["train", "test"]
    assert list(graph.splits) == ["train"]
    assert other.features is graph.features


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"valid": [0]}, "unknown split 'valid'"),
        ({"train": [0, 4]}, "split train holds node 4, but the graph has 4 nodes"),
        ({"train": [-1]}, "holds node -1"),
        ({"train": [1, 1]}, "holds a node twice"),
        ({"train": [0, 1], "test": [1, 2]}, r"node 1 is in both train and test \(1 nodes are\)"),
        ({"val": np.ones(3, bool)}, r"the val mask has shape \(3,\), not \(4,\)"),
        ({"val": [0.5]}, "positions or a boolean mask"),
        ({"val": None}, "positions or a boolean mask"),
    ],
)
def test_wrong_splits_are_refused(splits, message):
    with pytest.raises(UserError, match=message):
        from_scipy(PATH, splits=splits)


def test_without_ids_nodes_are_numbered():
    assert from_scipy(PATH).node_ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ids", [[10, 2**60, -3, 0], ["b", "a", "", "ä"]])
def test_the_users_ids_come_back(ids):
    for given_ids in (ids, np.array(ids)):
        assert from_scipy(PATH, node_ids=given_ids).node_ids.tolist() == ids


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "b", "a", "c"], r"node id 'a' appears 2 times \(1 duplicates in all\)"),
        ([7, 7, 7, 1], r"node id 7 appears 3 times \(2 duplicates in all\)"),
        (["a", "b"], "node_ids has 2 entries but the graph has 4 nodes"),
        (["a", None, "b", "c"], "node_ids has 1 missing ids"),
        ([1, "a", 2, 3], "node_ids must be all integers below"),
    ],
)
def test_wrong_ids_are_refused(ids, message):
    with pytest.raises(UserError, match=message):
        from_scipy(PATH, node_ids=ids)


# The fingerprint


def test_the_fingerprint_does_not_depend_on_labels_splits_ids_or_name():
    graph = from_scipy(PATH, X)
    other = from_scipy(PATH, X, [0, 1, 0, 1], {"train": [0]}, node_ids=list("abcd"), name="other")
    assert other.fingerprint == graph.fingerprint
    assert graph.with_splits(train=[1]).fingerprint == graph.fingerprint
    assert graph.with_name("third").fingerprint == graph.fingerprint


def test_the_fingerprint_depends_on_edges_weights_and_features():
    sparse = sp.csr_array(X)
    wider = sp.csr_array((sparse.data, sparse.indices, sparse.indptr), shape=(4, 5))
    mostly_zero = sp.csr_array(X * [[1], [0], [0], [0]])
    widest = sp.csr_array((mostly_zero.data, mostly_zero.indices, mostly_zero.indptr), shape=(4, 5))
    changed = X.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], 100)
    fewer = PATH.copy()
    fewer[2, 3] = fewer[3, 2] = 0
    variants = [
        from_scipy(PATH, X),
        from_scipy(PATH, changed),
        from_scipy(PATH),
        from_scipy(PATH, X[:, :2]),
        from_scipy(PATH, wider),
        from_scipy(PATH, mostly_zero),
        from_scipy(PATH, widest),
        from_scipy(fewer, X),
        from_scipy(PATH * 2.0, X),
        from_scipy(PATH * 3.0, X),
    ]
    assert len({graph.fingerprint for graph in variants}) == len(variants)


def test_the_same_edges_in_another_order_have_the_same_fingerprint():
    first = from_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 4)
    second = from_edges(np.array([3, 2, 0]), np.array([2, 1, 1]), 4)
    assert first.fingerprint == second.fingerprint == from_scipy(PATH).fingerprint


def test_repr_gives_the_sizes():
    graph = from_scipy(PATH, X, [0, 1, 0, 1], {"train": [0, 1]}, name="toy")
    assert repr(graph) == ("Graph('toy', num_nodes=4, num_edges=3, num_features=3, num_classes=2, splits={'train': 2})")


def test_a_graph_cannot_be_changed():
    with pytest.raises(AttributeError):
        from_scipy(PATH).name = "other"


def test_a_sparse_feature_that_is_no_number_is_named_also_as_the_first_of_its_row():
    features = sp.csr_array(np.array([[1.0, 2.0], [0.0, 0.0], [np.nan, 1.0]]))
    with pytest.raises(UserError, match="feature 0 of node 2 is nan"):
        from_scipy(sp.csr_array((3, 3)), features)


def test_labels_of_bytes_are_those_of_the_same_letters():
    graph = from_scipy(sp.csr_array((3, 3)), labels=np.array([b"", b"oak", b"ash"]))
    assert graph.class_names == ("ash", "oak")
    assert graph.labels.tolist() == [-1, 1, 0]
