import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp

from nagphormer import UserError, from_networkx, from_scipy, read_tables
from nagphormer.data.classes import Classes, in_order, name_classes, number_classes, read_labels

LABELS = np.array([0, 0, 0, 0, 1, 1, 2, 0, 1, 2])
SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 1]])


def graph_with(labels, **parts):
    labels = None if labels is None else np.asarray(labels)
    num_nodes = 6 if labels is None else len(labels)
    return from_scipy(sp.csr_array((num_nodes, num_nodes)), labels=labels, **parts)


def test_names_that_are_all_numbers_are_in_the_order_of_numbers_and_others_in_that_of_text():
    assert in_order(["10", "9", "-1.5", "2"]) == ["-1.5", "2", "9", "10"]
    assert in_order(["10", "9", "b"]) == ["10", "9", "b"]
    assert in_order(["1e3", "20"]) == ["1e3", "20"]  # an exponent is text
    assert in_order([]) == []


def test_values_become_labels_in_the_order_of_their_names():
    names, labels = name_classes(np.array(["10", "9", "10", "", "2", None], object))
    assert names == ("2", "9", "10")
    assert labels.tolist() == [2, 1, 2, -1, 0, -1]
    assert number_classes(["10", "9", "2"], fractions=False) == ({"10": 2, "9": 1, "2": 0}, ("2", "9", "10"))


def test_every_reader_orders_numbers_alike(tmp_path):
    pytest.importorskip("duckdb")
    networkx = pytest.importorskip("networkx")
    years = ["1999", "210", "30"]
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text("id,label\n" + "".join(f"{n},{y}\n" for n, y in zip("abc", years, strict=True)))
    drawn = networkx.path_graph(3)
    networkx.set_node_attributes(drawn, dict(enumerate(years)), "label")
    graphs = [
        read_tables(tmp_path / "edges.csv", tmp_path / "nodes.csv"),
        from_networkx(drawn, label="label"),
        graph_with(years),
    ]
    for graph in graphs:
        assert graph.class_names == ("30", "210", "1999")
        assert graph.labels.tolist() == [2, 1, 0]


def test_every_reader_spells_truth_values_alike(tmp_path):
    pytest.importorskip("duckdb")
    networkx = pytest.importorskip("networkx")
    truths = pa.table({"id": ["a", "b", "c"], "label": [True, None, False]})
    pa.parquet.write_table(truths, tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    for name, no, yes in (("python", "False", "True"), ("json", "false", "true"), ("excel", "FALSE", "TRUE")):
        (tmp_path / f"{name}.csv").write_text(f"id,label\na,{yes}\nb,\nc,{no}\n")
    drawn = networkx.path_graph(3)
    networkx.set_node_attributes(drawn, {0: True, 2: False}, "label")
    nodes = ("nodes.parquet", "python.csv", "json.csv", "excel.csv")
    graphs = [read_tables(tmp_path / "edges.csv", tmp_path / name) for name in nodes]
    graphs += [from_networkx(drawn, label="label"), graph_with(np.array([True, None, False], object))]
    for graph in graphs:
        assert graph.class_names == ("False", "True")
        assert graph.labels.tolist() == [1, -1, 0]
    networkx.set_node_attributes(drawn, True, "label")
    for graph in (from_networkx(drawn, label="label"), graph_with([True, True, True])):
        assert (graph.class_names, graph.labels.tolist()) == (("False", "True"), [1, 1, 1])


def _objects(*values):
    found = np.empty(len(values), object)
    for place, value in enumerate(values):
        found[place] = value
    return found


@pytest.mark.parametrize(
    "given",
    [
        [0, 1, -1, 1],
        [0.0, 1.0, np.nan, 1.0],
        [[0], [1], [-1], [1]],
        np.array([[0.0], [1.0], [np.nan], [1.0]]),
        _objects(0, 1, None, 1),
        _objects(0.0, np.float64(1), np.nan, 1),
        np.ma.masked_array([0, 1, 7, 1], mask=[False, False, True, False]),
        pa.array([0, 1, None, 1]),
    ],
    ids=["integers", "floats", "column", "column of floats", "objects", "mixed", "masked", "arrow"],
)
def test_numbers_are_classes_whatever_holds_them(given):
    names, labels = read_labels(given)
    assert names is None
    assert labels.tolist() == [0, 1, -1, 1]


def test_frames_of_labels_are_read():
    pandas = pytest.importorskip("pandas")
    for given in (
        pandas.array([0, 1, None, 1]),
        pandas.Series([0, 1, np.nan, 1]),
        pandas.DataFrame({"y": [0, 1, -1, 1]}),
    ):
        assert read_labels(given)[1].tolist() == [0, 1, -1, 1]
    for kind in ("string", "category", "object"):
        names, labels = read_labels(pandas.Series(["b", None, "a", "b"], dtype=kind))
        assert (names, labels.tolist()) == (("a", "b"), [1, -1, 0, 1])
    names, labels = read_labels(pandas.array([True, None, False], dtype="boolean"))
    assert (names, labels.tolist()) == (("False", "True"), [1, -1, 0])


def test_names_may_be_given_in_an_order_of_their_own():
    assert graph_with(["low", "high", ""], class_names=["low", "mid", "high"]).labels.tolist() == [0, 2, -1]
    several = graph_with(_objects(["low"], ["high", "low"], []), class_names=["low", "mid", "high"])
    assert several.labels.tolist() == [[1, 0, 0], [1, 0, 1], [0, 0, 0]]
    assert graph_with([True, False], class_names=["no", "yes"]).class_names == ("no", "yes")


def test_lists_are_several_labels_of_a_node():
    names, labels = read_labels(_objects(["b"], ("a", "b"), None, []))
    assert (names, labels.tolist()) == (("a", "b"), [[0, 1], [1, 1], [0, 0], [0, 0]])
    names, labels = read_labels(_objects([2], [0, 1], []))
    assert (names, labels.tolist()) == (None, [[0, 0, 1], [1, 1, 0], [0, 0, 0]])
    for rows in ([["b"], ["a", "b"], []], [["b", "c"], ["a", "b"], ["a", "c"]], [[2], [0, 1], []]):
        several = from_scipy(sp.csr_array((3, 3)), labels=rows)
        found = several.class_names or (0, 1, 2)
        assert [[found[label] for label in np.flatnonzero(row)] for row in several.labels] == [
            sorted(row) for row in rows
        ]
    with pytest.raises(UserError, match="node 1 has a label twice"):
        read_labels(_objects(["b"], ["a", "a"]))


def test_a_matrix_with_one_label_a_node_is_said_to_be_one():
    with pytest.warns(UserWarning, match="each node has exactly one of 2 labels: .* labels.argmax"):
        graph_with([[1, 0], [0, 1]])


def test_incomplete_multi_labels_are_refused():
    with pytest.raises(UserError, match="node 1 misses some of its 2 labels"):
        read_labels(np.array([[1, 0], [np.nan, 1]]))


@pytest.mark.parametrize("names", [["a", "b"], None])
def test_several_labels_come_back_from_networkx(names):
    pytest.importorskip("networkx")
    graph = graph_with([[1, 0], [1, 1], [0, 0], [0, 1]], class_names=names)
    back = from_networkx(graph.to_networkx(), label="label")
    assert back.class_names == graph.class_names
    assert back.labels.tolist() == graph.labels.tolist()


def test_classes_of_numbers_are_compared_with_numbers():
    """A table calls labels 1, 2 and 3 so; PyG has a class 0 that is empty."""
    by_table, by_pyg = graph_with(["1", "3", "2", ""]), graph_with([1, 3, 2, -1])
    nodes = np.arange(3)
    assert Classes.of(by_table).targets(by_pyg, nodes).tolist() == [0, 2, 1]
    assert Classes.of(by_pyg).targets(by_table, nodes).tolist() == [1, 3, 2]
    with pytest.raises(UserError, match="class '0', which the model has never seen: it knows 1, 2, 3"):
        Classes.of(by_table).targets(graph_with([0, 1, 2, -1]), nodes)
    several, named = graph_with([[1, 0], [1, 1]]), graph_with([[1, 0], [1, 1]], class_names=["1", "0"])
    assert Classes.of(several).targets(named, np.arange(2)).tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("texts", [["-2", "1"], ["-2.0", "-1", "1"]])
def test_numbers_below_minus_one_are_no_classes_and_not_unknown_either(texts):
    with pytest.raises(UserError, match="label -2 is negative"):
        number_classes(texts, fractions=True)
    assert number_classes(["-2", "a"], fractions=False)[1] == ("-2", "a")


def test_known_classes_are_found_by_their_spelling_before_their_number():
    assert number_classes(["1.0", "1"], fractions=True, known=("1", "1.0"))[0] == {"1.0": 1, "1": 0}
    assert number_classes(["2.5", "1.0"], fractions=True, known=("2.5", "x"))[1] == ("2.5", "x", "1.0")
    with pytest.raises(UserError, match=r"label 3\.5 is a fraction"):
        number_classes(["2.5", "3.5"], fractions=True, known=("2.5", "x"))


def test_a_model_of_the_older_spelling_is_compared_by_name():
    older = Classes(2, ("false", "true"), multi_label=False)
    assert older.targets(graph_with([True, False]), np.arange(2)).tolist() == [1, 0]


def test_true_beside_other_names_is_a_name():
    assert name_classes(np.array(["true", "maybe"]))[0] == ("maybe", "true")
    assert number_classes(["true", "maybe", "-1"], fractions=False)[0] == {"true": 1, "maybe": 0, "-1": -1}


def test_a_model_of_the_older_order_is_compared_by_name():
    older = Classes(3, ("10", "2", "9"), multi_label=False)
    assert older.targets(graph_with(["2", "9", "10"]), np.arange(3)).tolist() == [1, 2, 0]


def test_classes_are_those_of_the_labels():
    assert Classes.of(graph_with([0, 2, -1])) == Classes(3, None, multi_label=False)
    assert Classes.of(graph_with(["b", "a", None])) == Classes(2, ("a", "b"), multi_label=False)
    assert Classes.of(graph_with(SEVERAL)) == Classes(3, None, multi_label=True)


def test_values_are_names_or_else_numbers():
    assert Classes(2, ("a", "b"), False).values.tolist() == ["a", "b"]
    assert Classes(2, None, False).values.tolist() == [0, 1]


def test_targets_of_the_graph_itself_are_its_labels():
    for graph in (graph_with(LABELS), graph_with(SEVERAL), graph_with(["b", "a", "c", "a"])):
        nodes = np.array([3, 0, 2])
        np.testing.assert_array_equal(Classes.of(graph).targets(graph, nodes), graph.labels[nodes])


def test_targets_of_another_graph_are_matched_by_class_name():
    known = Classes(3, ("cat", "dog", "fox"), multi_label=False)
    graph = graph_with(["fox", "dog", "fox"])  # here dog is 0 and fox is 1
    assert known.targets(graph, np.arange(3)).tolist() == [2, 1, 2]


def test_targets_without_names_on_both_sides_are_matched_by_number():
    assert Classes(3, None, False).targets(graph_with([0, 2]), np.arange(2)).tolist() == [0, 2]
    assert Classes(3, ("a", "b", "c"), False).targets(graph_with([0, 2]), np.arange(2)).tolist() == [0, 2]


def test_labels_the_model_has_never_seen_are_refused():
    with pytest.raises(UserError, match="2 nodes have class 'owl', which the model has never seen: it knows cat, dog"):
        Classes(2, ("cat", "dog"), False).targets(graph_with(["owl", "dog", "owl"]), np.arange(3))
    with pytest.raises(UserError, match="1 nodes have class '2', which the model has never seen: it knows 0, 1"):
        Classes(2, None, False).targets(graph_with([0, 2]), np.arange(2))


def test_an_unseen_class_outside_the_nodes_asked_for_does_not_matter():
    graph = graph_with(["owl", "dog", "cat"])
    assert Classes(2, ("cat", "dog"), False).targets(graph, np.array([1, 2])).tolist() == [1, 0]


def test_nodes_without_a_label_have_no_target():
    with pytest.raises(UserError, match="1 of the nodes have no label"):
        Classes(2, None, False).targets(graph_with([0, -1, 1]), np.arange(3))
    with pytest.raises(UserError, match="no labels to compare with"):
        Classes(2, None, False).targets(graph_with(None), np.arange(3))


def test_one_label_and_several_labels_do_not_mix():
    with pytest.raises(UserError, match="trained on one label per node, but this graph has several"):
        Classes(3, None, False).targets(graph_with(SEVERAL), np.arange(2))
    with pytest.raises(UserError, match="trained on several labels per node, but this graph has one"):
        Classes(3, None, True).targets(graph_with(LABELS), np.arange(2))
    with pytest.raises(UserError, match="knows 2 labels, but the graph has 3"):
        Classes(2, None, True).targets(graph_with(SEVERAL), np.arange(2))


def test_labels_of_a_multi_label_graph_are_matched_by_name():
    graph = from_scipy(sp.csr_array((2, 2)), labels=np.array([[1, 0], [1, 0]]), class_names=["b", "a"])
    assert Classes(2, ("a", "b"), True).targets(graph, np.arange(2)).tolist() == [[0, 1], [0, 1]]
    with pytest.raises(UserError, match="'c'"):
        Classes(2, ("a", "c"), True).targets(graph, np.arange(2))


def test_labels_by_name_are_what_a_model_decides_and_unknown_ones_are_empty():
    named = from_scipy(np.eye(4), labels=["b", "a", "", "b"])
    assert named.label_names().tolist() == ["b", "a", "", "b"]
    assert named.label_names([2, 0]).tolist() == ["", "b"]
    assert from_scipy(np.eye(3), labels=[1, -1, 0]).label_names(slice(2)).tolist() == [1, -1]
    several = np.array([[1, 0], [1, 1]])
    assert from_scipy(np.eye(2), labels=several, class_names=["x", "y"]).label_names().tolist() == several.tolist()


def test_labels_by_name_read_back_the_same():
    named = from_scipy(np.eye(4), labels=["10", "9", "", "10"])
    back = from_scipy(np.eye(4), labels=named.label_names())
    assert (back.labels.tolist(), back.class_names) == (named.labels.tolist(), named.class_names)


def test_a_graph_without_labels_has_no_names_of_them():
    with pytest.raises(UserError, match="has no labels"):
        from_scipy(np.eye(2)).label_names()
