import sys
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nagphormer import UserError, read_tables
from nagphormer.data import table_arrays
from nagphormer.data.folder import verify_graph
from nagphormer.data.graph import from_edges
from nagphormer.errors import MissingExtra

pytest.importorskip("duckdb", reason="reading tables needs DuckDB")


def write(path, text):
    path.write_text(text)
    return path


def write_columns(path, **columns):
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path)
    return path


def neighbors(graph):
    """Every node's neighbors by the user's ids."""
    ids = graph.node_ids.tolist()
    return {ids[node]: [ids[other] for other in row] for node, row in enumerate(rows(graph))}


def rows(graph):
    return np.split(graph.indices, graph.indptr[1:-1])


def assert_same(graph, other):
    assert graph.fingerprint == other.fingerprint
    assert graph.node_ids.tolist() == other.node_ids.tolist()
    assert graph.class_names == other.class_names
    assert list(graph.splits) == list(other.splits)
    for one, two in [(graph.labels, other.labels), *zip(graph.splits.values(), other.splits.values(), strict=True)]:
        np.testing.assert_array_equal(one, two)


@pytest.fixture
def edges(tmp_path):
    return write(tmp_path / "edges.csv", "source,target\nb,a\na,c\n")


# structure


def test_without_a_node_table_nodes_are_the_ids_sorted(edges):
    graph = read_tables(edges)
    assert graph.node_ids.tolist() == ["a", "b", "c"]
    assert graph.indptr.tolist() == [0, 2, 3, 4]
    assert graph.indices.tolist() == [1, 2, 0, 0]
    assert (graph.indptr.dtype, graph.indices.dtype) == (np.int64, np.int32)
    assert graph.features is graph.labels is graph.weights is graph.class_names is None
    assert graph.splits == {}


def test_with_a_node_table_nodes_keep_its_order_and_may_be_isolated(edges, tmp_path):
    nodes = write(tmp_path / "nodes.csv", "id\nc\nlonely\na\nb\n")
    graph = read_tables(edges, nodes)
    assert graph.node_ids.tolist() == ["c", "lonely", "a", "b"]
    assert neighbors(graph) == {"c": ["a"], "lonely": [], "a": ["c", "b"], "b": ["a"]}


def test_repeated_weights_are_summed_and_of_two_directions_the_larger_counts(tmp_path):
    text = "source,target,w\n0,1,1\n0,1,2.5\n1,0,3\n1,2,0\n2,2,9\n2,3,0.5\n3,2,4\n"
    graph = read_tables(write(tmp_path / "edges.csv", text), weight="w")
    assert neighbors(graph) == {0: [1], 1: [0], 2: [3], 3: [2]}
    assert graph.weights.tolist() == [3.5, 3.5, 4, 4]
    assert graph.weights.dtype == np.float32


def test_weights_that_are_all_one_after_merging_are_left_out(tmp_path):
    edges = write(tmp_path / "edges.csv", "source,target,w\n0,1,1\n1,0,0.5\n1,2,0.25\n1,2,0.75\n")
    assert read_tables(edges, weight="w").weights is None


def test_a_weight_column_that_is_not_named_is_ignored(tmp_path):
    assert read_tables(write(tmp_path / "edges.csv", "source,target,weight\n0,1,7\n")).weights is None


@settings(max_examples=25, deadline=None)
@given(
    ends=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 8)), max_size=30),
    weighted=st.booleans(),
    suffix=st.sampled_from([".csv", ".parquet"]),
    text_ids=st.booleans(),
)
def test_tables_give_the_graph_that_arrays_give(tmp_path_factory, ends, weighted, suffix, text_ids):
    folder = tmp_path_factory.mktemp("tables")
    source, target, eighths = np.array(ends, int).reshape(-1, 3).T
    ids = np.array([4, 0, 6, 1, 5, 3, 2])
    ids = np.char.add("node ", ids.astype(str)) if text_ids else ids * 10
    weights = eighths / 8
    edges = write_columns(folder / f"edges{suffix}", source=ids[source], target=ids[target], w=weights)
    nodes = write_columns(folder / f"nodes{suffix}", id=ids)
    graph = read_tables(edges, nodes, weight="w" if weighted else None)
    expected = from_edges(source, target, 7, weights if weighted else None, node_ids=ids)
    assert_same(graph, expected)


def test_a_graph_without_edges_has_its_nodes(tmp_path):
    edges = write(tmp_path / "edges.csv", "source,target\n")
    graph = read_tables(edges, write(tmp_path / "nodes.csv", "id,x\na,1\nb,2\n"), out=tmp_path / "graph")
    assert (graph.num_nodes, graph.num_edges, graph.features.tolist()) == (2, 0, [[1], [2]])


# ids


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_integer_ids_are_sorted_as_numbers_and_come_back_as_int64(tmp_path, suffix):
    edges = write_columns(tmp_path / f"edges{suffix}", source=[10, 9], target=[-3, 10])
    graph = read_tables(edges)
    assert graph.node_ids.dtype == np.int64
    assert graph.node_ids.tolist() == [-3, 9, 10]


def test_leading_zeros_survive_even_below_the_rows_that_are_sniffed(tmp_path):
    rows = "".join(f"{node},{node + 1}\n" for node in range(30_000))
    graph = read_tables(write(tmp_path / "edges.csv", f"source,target\n{rows}007,7\n"))
    assert {"007", "7"} < set(graph.node_ids)
    assert graph.num_nodes == 30_002


@pytest.mark.parametrize("ids", [["007", "8"], ["+7", "8"], ["7.0", "8"], ["1e3", "8"], [str(2**63), "8"]])
def test_ids_that_an_integer_would_not_give_back_stay_text(tmp_path, ids):
    graph = read_tables(write(tmp_path / "edges.csv", f"source,target\n{ids[0]},{ids[1]}\n"))
    assert sorted(graph.node_ids) == sorted(ids)


def test_white_space_around_ids_of_parquet_is_part_of_them(tmp_path):
    graph = read_tables(write_columns(tmp_path / "edges.parquet", source=[" 7"], target=["8 "]))
    assert graph.node_ids.tolist() == [" 7", "8 "]


def test_digits_that_a_parquet_file_calls_text_stay_text(tmp_path):
    graph = read_tables(write_columns(tmp_path / "edges.parquet", source=["10", "9"], target=["9", "2"]))
    assert graph.node_ids.tolist() == ["10", "2", "9"]


@pytest.mark.parametrize("kinds", list(product(["int", "text", "csv"], repeat=2)))
def test_ids_of_either_type_find_each_other_and_the_node_table_decides(tmp_path, kinds):
    def column(kind, values):
        return pa.array(values if kind != "text" else list(map(str, values)))

    suffixes = [".csv" if kind == "csv" else ".parquet" for kind in kinds]
    edges = write_columns(
        tmp_path / f"edges{suffixes[0]}", source=column(kinds[0], [5, 20]), target=column(kinds[0], [20, 7])
    )
    nodes = write_columns(tmp_path / f"nodes{suffixes[1]}", id=column(kinds[1], [20, 7, 5]))
    graph = read_tables(edges, nodes)
    assert graph.node_ids.tolist() == (["20", "7", "5"] if kinds[1] == "text" else [20, 7, 5])
    assert [row.tolist() for row in rows(graph)] == [[1, 2], [0], [0]]


def test_integer_edges_may_meet_nodes_of_which_some_have_names(tmp_path):
    edges = write_columns(tmp_path / "edges.parquet", source=[5], target=[20])
    graph = read_tables(edges, write(tmp_path / "nodes.csv", "id\n20\n5\n007\nx\n"))
    assert neighbors(graph) == {"20": ["5"], "5": ["20"], "007": [], "x": []}


def test_ids_from_zero_on_are_not_stored(tmp_path):
    graph = read_tables(write(tmp_path / "edges.csv", "source,target\n0,1\n1,2\n"))
    assert graph.ids is None
    assert graph.node_ids.tolist() == [0, 1, 2]


def test_unsigned_ids_beyond_int64_come_back_as_text(tmp_path):
    ids = pa.array([2**64 - 1, 3], pa.uint64())
    graph = read_tables(write_columns(tmp_path / "edges.parquet", source=ids, target=ids.take(pa.array([1, 0]))))
    assert graph.node_ids.tolist() == [str(2**64 - 1), "3"]


# labels, splits, features


def labels_of(tmp_path, values, **options):
    edges = write(tmp_path / "edges.csv", "source,target\n0,1\n")
    nodes = write_columns(tmp_path / "nodes.parquet", id=list(range(len(values))), label=pa.array(values))
    graph = read_tables(edges, nodes, **options)
    return graph.labels.tolist(), graph.class_names


def test_text_labels_become_sorted_class_names_and_empty_is_unknown(tmp_path):
    assert labels_of(tmp_path, ["dog", None, "cat", "", "dog"]) == ([1, -1, 0, -1, 1], ("cat", "dog"))


def test_minus_one_is_unknown_among_names_too(tmp_path):
    assert labels_of(tmp_path, ["dog", "-1", "cat", "10"]) == ([2, -1, 1, 0], ("10", "cat", "dog"))


def test_labels_from_zero_on_stay_as_they_are(tmp_path):
    assert labels_of(tmp_path, [2, 0, None, 1, -1]) == ([2, 0, -1, 1, -1], None)


def test_other_integers_are_mapped_in_numeric_order(tmp_path):
    assert labels_of(tmp_path, [10, 9, -1, 100]) == ([1, 0, -1, 2], ("9", "10", "100"))


def test_whole_fractions_are_integers_as_pandas_writes_them_beside_gaps(tmp_path):
    assert labels_of(tmp_path, [1.0, float("nan"), 0.0]) == ([1, -1, 0], None)


def test_labels_with_leading_zeros_are_names(tmp_path):
    nodes = write(tmp_path / "nodes.csv", "id,label\n0,01\n1,1\n")
    graph = read_tables(write(tmp_path / "edges.csv", "source,target\n0,1\n"), nodes)
    assert (graph.labels.tolist(), graph.class_names) == ([0, 1], ("01", "1"))


def test_labels_that_are_all_unknown_name_no_class(tmp_path):
    assert labels_of(tmp_path, pa.array([None, None], pa.string())) == ([-1, -1], None)


def test_fractions_are_no_labels(tmp_path):
    with pytest.raises(UserError, match=r"label 0\.5 is a fraction"):
        labels_of(tmp_path, [0.5, 1.0])


def test_split_words_are_read_in_any_case(tmp_path):
    words = ["Train", "VALID", "", "test", "validation", "val", " train "]
    edges = write(tmp_path / "edges.csv", "source,target\n0,1\n")
    rows = "".join(f"{node},{word}\n" for node, word in enumerate(words))
    splits = read_tables(edges, write(tmp_path / "nodes.csv", f"id,split\n{rows}")).splits
    assert {split: idx.tolist() for split, idx in splits.items()} == {
        "train": [0, 6],
        "val": [1, 4, 5],
        "test": [3],
    }
    assert splits["train"].dtype == np.int64


def test_every_other_number_column_is_a_feature(edges, tmp_path):
    nodes = write(tmp_path / "nodes.csv", "x,id,label,flag,y\n1,a,0,true,0.5\n2,b,1,false,1\n3,c,0,true,-2\n")
    graph = read_tables(edges, nodes)
    assert graph.features.tolist() == [[1, 1, 0.5], [2, 0, 1], [3, 1, -2]]
    assert graph.features.dtype == np.float32
    assert read_tables(edges, nodes, features=["y", "x"]).features.tolist() == [[0.5, 1], [1, 2], [-2, 3]]
    assert read_tables(edges, nodes, features="y").features.tolist() == [[0.5], [1], [-2]]
    assert read_tables(edges, nodes, features=[]).features is None


def test_a_fraction_below_the_rows_that_are_sniffed_is_not_rounded(tmp_path):
    rows = "".join(f"{node},1\n" for node in range(30_000))
    nodes = write(tmp_path / "nodes.csv", f"id,x\n{rows}30000,0.25\n")
    graph = read_tables(write(tmp_path / "edges.csv", "source,target\n0,1\n"), nodes)
    assert graph.features[-1, 0] == 0.25


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.list_(pa.int16())])
@pytest.mark.parametrize("features", [None, "vector", ["vector"]])
def test_a_column_of_lists_gives_the_features(edges, tmp_path, kind, features):
    vectors = pa.array([[1, 2], [3, 4], [5, 6]], kind)
    nodes = write_columns(tmp_path / "nodes.parquet", id=["a", "b", "c"], vector=vectors)
    assert read_tables(edges, nodes, features=features).features.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_features_wider_than_a_batch_of_rows_arrive_whole(edges, tmp_path, monkeypatch):
    monkeypatch.setattr(table_arrays, "_BATCH_VALUES", 7)
    values = np.arange(15.0).reshape(3, 5)
    nodes = write_columns(tmp_path / "nodes.parquet", id=["a", "b", "c"], vector=list(values))
    assert read_tables(edges, nodes).features.tolist() == values.tolist()


def test_the_index_that_pandas_writes_is_no_feature(edges, tmp_path):
    nodes = write(tmp_path / "nodes.csv", ",id,x\n0,a,5\n1,b,6\n2,c,7\n")
    assert read_tables(edges, nodes).features.tolist() == [[5], [6], [7]]


def test_columns_may_bear_each_others_names(tmp_path):
    edges = write(tmp_path / "edges.csv", 'target,source,"my ""w"""\n1,2,0.5\n')
    nodes = write(tmp_path / "nodes.csv", "x,label,split,id,rowid\n2,train,0,7,9\n1,test,1,8,9\n")
    graph = read_tables(
        edges,
        nodes,
        source="target",
        target="source",
        weight='my "w"',
        id="x",
        label="split",
        split="label",
        features=["rowid", "id"],
    )
    assert graph.node_ids.tolist() == [2, 1]
    assert graph.weights.tolist() == [0.5, 0.5]
    assert graph.labels.tolist() == [0, 1]
    assert {split: idx.tolist() for split, idx in graph.splits.items()} == {"train": [0], "test": [1]}
    assert graph.features.tolist() == [[9, 7], [9, 8]]


# where the graph goes


@pytest.fixture
def full(tmp_path):
    """An edge table and a node table with everything, in a folder of their own."""
    folder = tmp_path / "in"
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = [f"n{node}" for node in rng.permutation(50)]
    ends = rng.integers(0, 50, (2, 300))
    write_columns(
        folder / "edges.parquet",
        source=[names[end] for end in ends[0]],
        target=[names[end] for end in ends[1]],
        w=rng.random(300),
    )
    write_columns(
        folder / "nodes.parquet",
        id=names,
        label=rng.choice(["x", "y", "z"], 50),
        split=["train", "val", "test", None, "train"] * 10,
        vector=list(rng.random((50, 4))),
    )
    return folder / "edges.parquet", folder / "nodes.parquet"


def test_a_graph_folder_equals_the_graph_in_memory(full, tmp_path):
    in_memory = read_tables(*full, weight="w")
    on_disk = read_tables(*full, weight="w", out=tmp_path / "deep" / "graph")
    assert_same(on_disk, in_memory)
    assert isinstance(on_disk.indices, np.memmap)
    assert isinstance(on_disk.features, np.memmap)
    assert on_disk.class_names == ("x", "y", "z")
    verify_graph(tmp_path / "deep" / "graph")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["graph"]


def test_little_memory_gives_the_same_graph(full):
    assert_same(read_tables(*full, weight="w", memory="64MB"), read_tables(*full, weight="w"))


def test_a_failure_while_writing_leaves_nothing_behind(full, tmp_path, monkeypatch):
    def fail(folder, graph):
        raise RuntimeError("stop")

    monkeypatch.setattr(table_arrays, "write_manifest", fail)
    with pytest.raises(RuntimeError, match="stop"):
        read_tables(*full, out=tmp_path / "graph")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_an_existing_folder_is_refused_before_reading(tmp_path):
    (tmp_path / "graph").mkdir()
    write(tmp_path / "graph" / "mine.txt", "keep")
    with pytest.raises(UserError, match="already exists"):
        read_tables(tmp_path / "no such file.csv", out=tmp_path / "graph")


# bad input

BAD_EDGES = {
    "has no column 'source': it has Source, target, w. Did you mean 'Source'?": "Source,target,w\na,b,1\n",
    "edge 2 of .*, with source 'b', has no target; 2 such edges in all": "source,target,w\na,b,1\nb,,1\n,c,1\n",
    "edge 1 of .*, with target 'b', has no source; 1 such": "source,target,w\n,b,1\n",
    "edge 2 of .*, from 'a' to 'b', has weight -1.0; 1 such": "source,target,w\na,c,1\na,b,-1\n",
    "has weight nan": "source,target,w\na,b,nan\na,b,1\n",
    "has weight inf": "source,target,w\na,b,inf\na,b,1\n",
    "has no weight": "source,target,w\na,b,\na,b,1\n",
    'Line: 2 .*Could not convert string "much"': "source,target,w\na,b,much\n",
    "has no column 'w': it has source, target": "source,target\na,b\n",
    "the graph is empty": "source,target,w\n",
    "is empty: its first line must name the columns": "",
    "Line: 3 .* Expected Number of Columns: 3 Found: 1": "source,target,w\na,b,1\nc\nd,e,1\n",
    "Line: 3 .* unterminated quote": 'source,target,w\na,b,1\n"c,d,1\n',
    "out of range": "source,target,w\na,b,3e38\na,b,3e38\n",
}


@pytest.mark.parametrize("message", BAD_EDGES)
def test_bad_edges_are_refused_and_leave_nothing(tmp_path, message):
    edges = write(tmp_path / "edges.csv", BAD_EDGES[message])
    with pytest.raises(UserError, match=message):
        read_tables(edges, weight="w", out=tmp_path / "graph")
    assert [path.name for path in tmp_path.iterdir()] == ["edges.csv"]


BAD_NODES = {
    "2 edges of .* lead to a node that .* lacks, such as 'b'": "id\na\nc\n",
    r"node id 'c' appears 2 times in .* \(3 duplicates in all\)": "id\nb\nc\na\na\na\nc\n",
    "row 2 of .* has no 'id'; 1 such rows": "id,x\na,1\n,2\n",
    "column 'split' of .* holds 'holdout' at node 'b'": "id,split\na,train\nb,holdout\nc,\n",
    "feature 'y' of node 'b' is nan; 2 such nodes in all": "id,x,y\na,1,1\nb,1,nan\nc,inf,1\n",
    "feature 'y' of node 'b' is missing; 1 such": "id,x,y\na,1,1\nb,1,\nc,1,1\n",
    "feature 'x' of node 'c' is -inf": "id,x\na,1\nb,1\nc,-inf\n",
    r"feature 'x' of node 'c' is 1e\+300": "id,x\na,1\nb,1\nc,1e300\n",
    r"do not hold numbers: name \(VARCHAR\).*features=": "id,x,name\na,1,Ann\nb,2,Bob\nc,3,Cem\n",
    "no column 'id': it has key, x": "key,x\na,1\n",
    "the graph is empty: .*nodes.csv": "id,x\n",
}


@pytest.mark.parametrize("message", BAD_NODES)
def test_bad_nodes_are_refused_and_leave_nothing(tmp_path, message):
    edges = write(tmp_path / "edges.csv", "source,target\na,c\nb,c\na,b\n")
    nodes = write(tmp_path / "nodes.csv", BAD_NODES[message])
    with pytest.raises(UserError, match=message):
        read_tables(edges, nodes, out=tmp_path / "graph")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "nodes.csv"]


def test_text_that_is_named_as_a_feature_is_refused_with_its_line(edges, tmp_path):
    nodes = write(tmp_path / "nodes.csv", "id,x\na,1\nb,two\nc,3\n")
    with pytest.raises(UserError, match=r'cannot read .*nodes.csv: .*Line: 3 .* column "x".*"two"'):
        read_tables(edges, nodes, features=["x"])


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1, 2], [1], [1, 2]], "feature 'v' of node 'b' has 1 entries, but that of the first node has 2"),
        ([[1, 2], [1, None], [1, 2]], "entry 1 of feature 'v' of node 'b' is missing"),
        ([[1, 2], [1, 2], [float("nan"), 2]], "entry 0 of feature 'v' of node 'c' is nan"),
        ([None, [1, 2], [1, 2]], "feature 'v' of node 'a' is missing"),
        ([[], [], []], "has 0 entries"),
    ],
)
def test_bad_lists_are_refused(edges, tmp_path, vectors, message):
    lists = pa.array(vectors, pa.list_(pa.float64()))
    with pytest.raises(UserError, match=message):
        read_tables(edges, write_columns(tmp_path / "nodes.parquet", id=["a", "b", "c"], v=lists))


@pytest.mark.parametrize("option", ["label", "split", "features", "id"])
def test_a_named_column_must_exist(edges, tmp_path, option):
    nodes = write(tmp_path / "nodes.csv", "id,topic,x\na,0,1\nb,1,1\nc,1,1\n")
    with pytest.raises(UserError, match=r"no column 'topics': it has id, topic, x. Did you mean 'topic'"):
        read_tables(edges, nodes, **{option: "topics"})


def test_node_columns_without_a_node_table_are_refused(edges):
    for options in ({"features": ["x"]}, {"label": "topic"}, {"split": "part"}):
        with pytest.raises(UserError, match="give one with nodes="):
            read_tables(edges, **options)


def test_a_column_has_one_meaning(edges, tmp_path):
    nodes = write(tmp_path / "nodes.csv", "id,label\na,1\nb,1\nc,1\n")
    with pytest.raises(UserError, match="column 'label' is the id, label or split"):
        read_tables(edges, nodes, features=["label"])
    with pytest.raises(UserError, match="source, target and weight are source, source"):
        read_tables(edges, target="source")


def test_ids_must_be_integers_or_text(tmp_path):
    edges = write_columns(tmp_path / "edges.parquet", source=[1.0, 2.0], target=[2.0, None])
    with pytest.raises(UserError, match=r"column 'source' of .* holds DOUBLE: ids are integers or text"):
        read_tables(edges)


def test_a_struct_is_no_label(edges, tmp_path):
    nodes = write_columns(tmp_path / "nodes.parquet", id=["a", "b", "c"], label=[{"x": 1}] * 3)
    with pytest.raises(UserError, match=r"column 'label' of .* one value a node"):
        read_tables(edges, nodes)


def test_a_list_of_lists_is_no_label(edges, tmp_path):
    nodes = write_columns(tmp_path / "nodes.parquet", id=["a", "b", "c"], label=[[["x"]]] * 3)
    with pytest.raises(
        UserError, match=r"'label' of .* holds VARCHAR\[\]\[\]: it must hold one value a node, or a list"
    ):
        read_tables(edges, nodes)


def test_lists_beside_single_labels_in_a_csv_are_refused(edges, tmp_path):
    nodes = write(tmp_path / "nodes.csv", 'id,label\na,x\nb,"[x, y]"\nc,[]\n')
    with pytest.raises(UserError, match=r"'label' of node 'b' is \[x, y\], a list, and others .* \(2 lists in all\)"):
        read_tables(edges, nodes)


@pytest.mark.parametrize("label", [[-2, 1, 3], ["-2", "-1", "3"], [[1], [-2, 1], []]])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_below_minus_one_are_refused(edges, tmp_path, label, suffix):
    given = label if suffix == ".parquet" or not isinstance(label[0], list) else list(map(str, label))
    nodes = write_columns(tmp_path / f"nodes{suffix}", id=["a", "b", "c"], label=given)
    with pytest.raises(UserError, match="label -2 is negative"):
        read_tables(edges, nodes)


def test_what_is_no_folder_to_write_is_refused(edges):
    with pytest.raises(UserError, match="out is 5: give the folder to write"):
        read_tables(edges, out=5)


def test_an_unusable_memory_is_refused(edges):
    with pytest.raises(UserError, match="cannot read 'much' as a size"):
        read_tables(edges, memory="much")
    with pytest.raises(UserError, match="allow more with memory="):
        read_tables(edges, memory="1kB")


def test_without_duckdb_the_message_says_what_to_install(edges, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'nagphormer\[tables\]'"):
        read_tables(edges)


@pytest.mark.parametrize("features", [None, "vector", ["vector"]])
def test_a_csv_may_hold_lists_of_features(edges, tmp_path, features):
    nodes = write(tmp_path / "nodes.csv", 'id,vector\na,"[1, 2.5]"\nb,"[3.0, -4]"\nc,"[0, 1e3]"\n')
    assert read_tables(edges, nodes, features=features).features.tolist() == [[1, 2.5], [3, -4], [0, 1000]]


def test_a_list_of_another_length_in_a_csv_is_refused(edges, tmp_path):
    nodes = write(tmp_path / "nodes.csv", 'id,vector\na,"[1, 2.5]"\nb,"[3.0]"\nc,"[0, 1e3]"\n')
    with pytest.raises(UserError, match="feature 'vector' of node 'b' has 1 entries, but that of the first node has 2"):
        read_tables(edges, nodes)


def test_a_list_in_a_csv_that_is_none_is_refused(edges, tmp_path):
    rows = "".join(f'n{i},"[1, 2]"\n' for i in range(30_000))  # beyond the rows whose look decides
    nodes = write(tmp_path / "nodes.csv", f'id,vector\na,"[1, 2.5]"\nb,"[3, 4]"\n{rows}c,"[0; 1]"\n')
    with pytest.raises(UserError, match=r"feature 'vector' of node 'c' is '\[0; 1\]': it must be a list of numbers"):
        read_tables(edges, nodes)


def test_a_tab_separated_table_may_begin_with_a_column_without_a_name(edges, tmp_path):
    nodes = write(tmp_path / "nodes.tsv", "\tid\tage\n0\ta\t1\n1\tb\t2\n2\tc\t3\n")
    assert read_tables(edges, nodes, features=["age"]).features.tolist() == [[1], [2], [3]]
