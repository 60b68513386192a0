import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest

from nagphormer import UserError, read_tables
from nagphormer.data.table_frames import read_frame

pytest.importorskip("duckdb", reason="reading tables needs DuckDB")

EDGES = {"source": ["b", "a"], "target": ["a", "c"]}
NODES = {"id": ["a", "b", "c"], "label": ["x", None, "y"], "age": [1, 2, 3], "flag": [True, False, True]}


def arrow(columns):
    return pa.table(columns)


def pandas(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


def pandas_of_arrow(columns):
    pd = pytest.importorskip("pandas")
    return pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype)


def pandas_with_index(columns):
    return pytest.importorskip("pandas").DataFrame(columns, index=[7, 8, 9][: len(columns[next(iter(columns))])])


def polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def stream(columns):
    return pa.table(columns).to_reader()


def batch(columns):
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("make", [arrow, batch, stream, pandas, pandas_of_arrow, pandas_with_index, polars])
def test_a_frame_of_any_library_is_read_as_a_file_is(make, tmp_path):
    graph = read_tables(make(EDGES), make(NODES), out=tmp_path / "graph")
    assert graph.node_ids.tolist() == ["a", "b", "c"]
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 2, 3, 4], [1, 2, 0, 0])
    assert (graph.labels.tolist(), graph.class_names) == ([0, -1, 1], ("x", "y"))
    assert (graph.features.tolist(), graph.feature_names) == ([[1, 1], [2, 0], [3, 1]], ("age", "flag"))


def test_a_frame_may_stand_beside_a_file(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\nb,a\na,c\n")
    assert read_tables(tmp_path / "edges.csv", arrow(NODES)).features.tolist() == [[1, 1], [2, 0], [3, 1]]


def test_rows_of_many_pieces_keep_their_order():
    pieces = [{"id": [f"n{node}" for node in range(start, start - 1000, -1)]} for start in range(999, 300_000, 1000)]
    nodes = pa.concat_tables([pa.table(piece) for piece in pieces])
    graph = read_tables(arrow({"source": ["n0"], "target": ["n1"]}), nodes)
    assert graph.node_ids.tolist() == nodes["id"].to_pylist()


NUMBERS = [
    pa.array([1, 2, 3], pa.int8()),
    pa.array([1, 2, 3], pa.uint64()),
    pa.array(np.array([1, 2, 3], np.float16)),
    pa.array([1, 2, 3], pa.float32()),
    pa.array([decimal.Decimal(value) for value in (1, 2, 3)], pa.decimal128(10, 2)),
    pa.array([decimal.Decimal(value) for value in (1, 2, 3)], pa.decimal256(50, 2)),
    pa.array([1, 2, 3]).dictionary_encode(),
]


@pytest.mark.parametrize("numbers", NUMBERS, ids=lambda numbers: str(numbers.type))
def test_numbers_of_every_arrow_type_are_features(numbers):
    graph = read_tables(arrow(EDGES), arrow({"id": ["a", "b", "c"], "x": numbers}))
    assert graph.features.tolist() == [[1], [2], [3]]


TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_text_of_every_arrow_type_is_an_id_and_a_label(kind):
    def text(values):
        return pa.array(values).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(values, kind)

    edges = {name: text(values) for name, values in EDGES.items()}
    graph = read_tables(arrow(edges), arrow({"id": text(["c", "a", "b"]), "label": text(["x", "y", "x"])}))
    assert graph.node_ids.tolist() == ["c", "a", "b"]
    assert (graph.labels.tolist(), graph.class_names) == ([0, 1, 0], ("x", "y"))


LISTS = [pa.list_(pa.float64()), pa.large_list(pa.int8()), pa.list_(pa.float32(), 2), pa.list_(pa.float16(), 2)]


@pytest.mark.parametrize("kind", LISTS, ids=str)
def test_lists_of_every_arrow_type_are_features(kind):
    lists = pa.array([[np.float16(1), np.float16(2)]] * 3, pa.list_(pa.float16(), 2)).cast(kind)
    assert read_tables(arrow(EDGES), arrow({"id": ["a", "b", "c"], "v": lists})).features.tolist() == [[1, 2]] * 3


def pandas_columns():
    """Columns of pandas that are not plain, and what they are as a feature."""
    pd = pytest.importorskip("pandas")
    return {
        "nullable integers": (pd.array([1, 2, 3], "Int64"), [1, 2, 3]),
        "nullable booleans": (pd.array([True, False, True], "boolean"), [1, 0, 1]),
        "nullable fractions": (pd.array([1, 2, 3], "Float32"), [1, 2, 3]),
        "objects": (pd.array([1, 2.5, True], object), [1, 2.5, 1]),
        "decimals": (pd.array([decimal.Decimal("1.5")] * 3, object), [1.5] * 3),
        "sparse": (pd.arrays.SparseArray([0, 0, 2.0]), [0, 0, 2]),
        "categories": (pd.Categorical([3, 1, 3]), [3, 1, 3]),
    }


PANDAS = ("nullable integers", "nullable booleans", "nullable fractions", "objects", "decimals", "sparse", "categories")


@pytest.mark.parametrize("kind", PANDAS)
def test_columns_of_pandas_that_hold_numbers_are_features(kind):
    column, expected = pandas_columns()[kind]
    graph = read_tables(arrow(EDGES), pandas({"id": ["a", "b", "c"], "x": column}))
    assert graph.features[:, 0].tolist() == expected


def test_numbers_beside_text_are_ids_as_text():
    graph = read_tables(pandas({"source": [1, "x", np.int64(7)], "target": ["x", 7, 1]}))
    assert graph.node_ids.tolist() == ["1", "7", "x"]


ODD = {
    "x .object .dict, set": [{1}, {"a": 1}, None],
    r"x .DATE": [datetime.date(2020, 1, 1)] * 3,
    "x .complex128": np.ones(3, complex),
    "x .STRUCT": [{"a": 1}] * 3,
    "x .BLOB": [b"1"] * 3,
    "x .VARCHAR": ["1", 2, None],
}


@pytest.mark.parametrize("message", ODD)
def test_columns_of_pandas_that_hold_no_numbers_are_refused_by_name_and_type(message):
    nodes = pandas({"id": ["a", "b", "c"], "x": ODD[message]})
    with pytest.raises(UserError, match=message):
        read_tables(arrow(EDGES), nodes)
    assert read_tables(arrow(EDGES), nodes, features=[]).features is None
    with pytest.raises(UserError, match="'x' of the frame of nodes holds"):
        read_tables(arrow(EDGES), nodes, features=["x"])


def test_spans_of_pandas_are_refused_by_their_type():
    pd = pytest.importorskip("pandas")
    for column in (pd.period_range("2020", periods=3, freq="M"), pd.interval_range(0, 3), pd.to_timedelta([1, 2, 3])):
        with pytest.raises(UserError, match="x "):
            read_tables(arrow(EDGES), pandas({"id": ["a", "b", "c"], "x": column}))


def test_types_of_polars_that_arrow_lacks_are_refused_by_name():
    pl = pytest.importorskip("polars")
    nodes = pl.DataFrame({"id": ["a", "b", "c"], "big": pl.Series([1, 2, 3], dtype=pl.Int128), "y": [1, 2, 3]})
    with pytest.raises(UserError, match=r"big .Int128"):
        read_tables(arrow(EDGES), nodes)
    assert read_tables(arrow(EDGES), nodes, features=["y"]).features.tolist() == [[1], [2], [3]]
    with pytest.raises(UserError, match=r"frame\.collect\(\)"):
        read_tables(nodes.lazy())


@pytest.mark.parametrize("given", [3, [("a", "b")], {"source": ["a"], "target": ["b"]}, np.eye(2)])
def test_what_is_no_table_is_refused(given):
    with pytest.raises(UserError, match=r"the frame of edges is a .*: give a path, or a table of pandas, polars or"):
        read_tables(given)


def test_a_series_is_no_table():
    for series in (pandas(EDGES)["source"], polars(EDGES)["source"]):
        with pytest.raises(UserError, match="the frame of edges is a Series: give a path, or a table of"):
            read_tables(series)


def test_an_index_that_bears_the_name_asked_for_is_named():
    with pytest.raises(UserError, match=r"no column 'id': it has .* the frame's index: give frame\.reset_index\(\)"):
        read_tables(arrow(EDGES), pandas(NODES).set_index("id"))
    for levels in (["id", "age"], list(NODES)):
        with pytest.raises(UserError, match=r"has no column 'id': it has .*give frame\.reset_index\(\)"):
            read_tables(arrow(EDGES), pandas(NODES).set_index(levels))


def test_two_columns_of_one_name_are_refused():
    pd = pytest.importorskip("pandas")
    with pytest.raises(UserError, match="the frame of nodes names column 'x' twice"):
        read_tables(arrow(EDGES), pd.DataFrame([["a", 1, 2]], columns=["id", "x", "x"]))
    with pytest.raises(UserError, match="the frame of nodes names column 'x' twice"):
        read_tables(arrow(EDGES), pa.table([["a"], [1], [2]], ["id", "x", "X"]))


def test_bad_rows_of_a_frame_are_refused_as_those_of_a_file():
    with pytest.raises(UserError, match="edge 2 of the frame of edges, with source 'b', has no target"):
        read_tables(arrow({"source": ["a", "b"], "target": ["b", None]}))


def test_columns_of_arrow_are_not_copied():
    pd = pytest.importorskip("pandas")
    column = pa.array(np.arange(100_000.0))
    for frame in (pa.table({"x": column}), pd.DataFrame({"x": pd.array(column, pd.ArrowDtype(pa.float64()))})):
        read, _ = read_frame(frame, "it")
        assert read["x"].chunk(0).buffers()[1].address == column.buffers()[1].address


@pytest.mark.parametrize("name", ["nodes.feather", "nodes.arrow"])
@pytest.mark.parametrize("compression", ["lz4", "uncompressed"])
def test_feather_files_are_read(tmp_path, name, compression):
    pa.feather.write_feather(pa.table(NODES), tmp_path / name, compression=compression)
    assert read_tables(arrow(EDGES), tmp_path / name).features.tolist() == [[1, 1], [2, 0], [3, 1]]


@pytest.mark.parametrize("column", [*NUMBERS, *LISTS], ids=lambda column: str(getattr(column, "type", column)))
@pytest.mark.parametrize("suffix", [".feather", ".parquet"])
def test_a_file_gives_the_features_that_its_frame_gives(tmp_path, column, suffix):
    if isinstance(column, pa.DataType):
        column = pa.array([[np.float16(1), np.float16(2)]] * 3, pa.list_(pa.float16(), 2)).cast(column)
    nodes = pa.table({"id": ["a", "b", "c"], "x": column})
    if suffix == ".feather":
        pa.feather.write_feather(nodes, tmp_path / "nodes.feather")
    else:
        pa.parquet.write_table(nodes, tmp_path / "nodes.parquet")
    expected = read_tables(arrow(EDGES), nodes)
    assert read_tables(arrow(EDGES), tmp_path / f"nodes{suffix}").fingerprint == expected.fingerprint


def test_types_that_arrow_itself_cannot_hold_empty_are_refused_by_name(tmp_path):
    union = pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [pa.array([1, 2, 3])])
    nodes = pa.table({"id": ["a", "b", "c"], "u": union, "x": [4, 5, 6]})
    pa.feather.write_feather(nodes, tmp_path / "nodes.feather")
    for given in (nodes, tmp_path / "nodes.feather"):
        with pytest.raises(UserError, match=r"u \(sparse_union"):
            read_tables(arrow(EDGES), given)
        assert read_tables(arrow(EDGES), given, exclude="u").features.tolist() == [[4], [5], [6]]


def nameless(folder, kind):
    """A table whose second column has no name, as pandas writes its index into a CSV."""
    table = pa.table([["a", "b", "c"], [0, 1, 2], [7, 8, 9]], ["id", "", "X"])
    if kind == "feather":
        pa.feather.write_feather(table, folder / "nodes.feather")
    elif kind == "parquet":
        pa.parquet.write_table(table, folder / "nodes.parquet")
    elif kind == "csv":
        (folder / "nodes.csv").write_text("id,,X\na,0,7\nb,1,8\nc,2,9\n")
    elif kind == "pandas":
        return table.to_pandas()
    elif kind == "polars":
        return polars(table.to_pydict())
    else:
        return table
    return folder / f"nodes.{kind}"


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "feather", "parquet", "csv"])
def test_a_column_without_a_name_is_no_feature_unless_it_is_named(tmp_path, kind):
    if kind == "pandas":
        pytest.importorskip("pandas")
    nodes = nameless(tmp_path, kind)
    assert read_tables(arrow(EDGES), nodes).feature_names == ("X",)
    assert read_tables(arrow(EDGES), nodes, features=["(no name)"]).features.tolist() == [[0], [1], [2]]


@pytest.mark.parametrize("name", ["Unnamed: 0", "Unnamed: 0.1", "__index_level_0__", "__index_level_1__"])
def test_what_an_index_without_a_name_is_called_is_no_feature(tmp_path, name):
    columns = {"id": ["a", "b", "c"], name: [0, 1, 2], "x": [7, 8, 9]}
    pa.csv.write_csv(pa.table(columns), tmp_path / "nodes.csv")
    for nodes in (arrow(columns), tmp_path / "nodes.csv"):
        assert read_tables(arrow(EDGES), nodes).feature_names == ("x",)
        assert read_tables(arrow(EDGES), nodes, features=name).feature_names == (name,)


def test_an_index_that_parquet_or_arrow_recorded_is_no_feature_unless_it_is_named(tmp_path):
    frame = pandas({"id": ["a", "b", "c"], "x": [7, 8, 9], "row": [4, 9, 6]}).set_index("row")
    frame.to_parquet(tmp_path / "nodes.parquet")
    for nodes in (tmp_path / "nodes.parquet", pa.Table.from_pandas(frame)):
        assert read_tables(arrow(EDGES), nodes).feature_names == ("x",)
        assert read_tables(arrow(EDGES), nodes, features=["row"]).features.tolist() == [[4], [9], [6]]
    frame.reset_index().set_index("id").to_parquet(tmp_path / "nodes.parquet")
    assert read_tables(arrow(EDGES), tmp_path / "nodes.parquet").node_ids.tolist() == ["a", "b", "c"]


def test_a_column_that_is_the_index_as_well_is_a_column():
    frame = pandas({"id": ["a", "b", "c"], "x": [7, 8, 9]}).set_index("x", drop=False)
    assert read_tables(arrow(EDGES), frame).feature_names == ("x",)


def test_names_of_columns_that_are_no_text_are_matched():
    nodes = pandas({0: ["a", "b", "c"], 1: [7, 8, 9], ("v", 2): [1, 2, 3], 4: ["p", "q", "p"]})
    edges = pandas({0: EDGES["source"], 1: EDGES["target"]})
    graph = read_tables(edges, nodes, source=0, target=1, id=0, label=4, features=[1, ("v", 2)])
    assert (graph.num_edges, graph.feature_names, graph.class_names) == (2, ("1", "('v', 2)"), ("p", "q"))
    assert read_tables(edges, nodes, source=0, target=1, id=0, label=4, features=1).feature_names == ("1",)
    with pytest.raises(UserError, match="has no column '7': it has 0, 1"):
        read_tables(edges, source=7, target=1)


@pytest.mark.parametrize("kind", ["float64", "object"])
def test_frames_without_rows_are_called_empty_whatever_their_types(kind):
    edges = pandas({"source": [], "target": [], "w": []}).astype(kind)
    with pytest.raises(UserError, match="the graph is empty: the frame of edges has no rows"):
        read_tables(edges, weight="w")
    graph = read_tables(edges, arrow({"id": ["a", "b"], "x": [1, 2]}), weight="w")
    assert (graph.num_nodes, graph.num_edges) == (2, 0)
    with pytest.raises(UserError, match="the graph is empty: the frame of nodes has no rows"):
        read_tables(arrow(EDGES), pandas({"id": [], "name": []}).astype(kind))


def test_ids_that_are_all_missing_are_said_to_be():
    with pytest.raises(UserError, match="edge 1 of the frame of edges, with target 'a', has no source; 2 such"):
        read_tables(arrow({"source": pa.nulls(2), "target": ["a", "b"]}))


def test_arrow_streams_in_a_file_are_read_and_other_files_refused(tmp_path):
    with pa.OSFile(str(tmp_path / "edges.arrow"), "wb") as sink, pa.ipc.new_stream(sink, pa.table(EDGES).schema) as out:
        out.write_table(pa.table(EDGES))
    assert read_tables(tmp_path / "edges.arrow").num_edges == 2
    (tmp_path / "none.feather").write_text("source,target\n")
    with pytest.raises(UserError, match=r"cannot read .*none\.feather as Arrow"):
        read_tables(tmp_path / "none.feather")
