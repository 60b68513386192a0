import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from nagphormer import UserError, load_graph, read_tables
from nagphormer.data import table_arrays, table_features
from nagphormer.errors import Refusal

pytest.importorskip("duckdb", reason="reading tables needs DuckDB")

EDGES = pa.table({"source": ["a"], "target": ["b"]})


def frame(**columns):
    ids = list("abcdefgh")[: len(next(iter(columns.values())))]
    return pa.table({"id": ids, **columns})


def read(nodes, **options):
    return read_tables(EDGES, nodes, **options)


def written(folder, nodes, suffix):
    path = folder / f"nodes{suffix}"
    if suffix == ".csv":
        pa.csv.write_csv(nodes, path)
    else:
        pa.parquet.write_table(nodes, path)
    return path


# encoded


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ""])
def test_categories_become_columns_of_zeros_and_ones_in_their_order(tmp_path, suffix):
    nodes = frame(x=[1.0, 2, 3, 4], city=["Rome", "Oslo", None, "Rome"], y=[5, 6, 7, 8])
    graph = read(nodes if not suffix else written(tmp_path, nodes, suffix), encode=["city"], out=tmp_path / "graph")
    assert graph.feature_names == ("x", "city=Oslo", "city=Rome", "y")
    assert graph.features.tolist() == [[1, 0, 1, 5], [2, 1, 0, 6], [3, 0, 0, 7], [4, 0, 1, 8]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbers_and_truth_values_are_categories_alike_from_every_file(tmp_path, suffix):
    nodes = frame(code=[10, 9, 10], part=[3.0, None, 2.0], flag=[True, False, None])
    graph = read(written(tmp_path, nodes, suffix), encode=["code", "part", "flag"])
    assert graph.feature_names == ("code=9", "code=10", "part=2", "part=3", "flag=False", "flag=True")
    assert graph.features.tolist() == [[0, 1, 0, 1, 0, 1], [1, 0, 0, 0, 1, 0], [0, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ""])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_number_that_is_none_is_of_no_category(tmp_path, suffix, kind):
    nodes = frame(x=pa.array([1, np.nan, 2, -np.nan], kind))
    graph = read(nodes if not suffix else written(tmp_path, nodes, suffix), encode="x")
    assert graph.feature_names == ("x=1", "x=2")
    assert graph.features.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]


def test_a_column_of_categories_is_encoded_whatever_columns_are_named():
    nodes = frame(x=[1, 2], city=["Rome", "Oslo"], y=[3, 4])
    assert read(nodes, features="y", encode="city").feature_names == ("y", "city=Oslo", "city=Rome")
    assert read(nodes, features=["city", "x"], encode="city").feature_names == ("city=Oslo", "city=Rome", "x")


def test_categories_wider_than_a_batch_of_rows_arrive_whole(monkeypatch):
    monkeypatch.setattr(table_arrays, "_BATCH_VALUES", 7)
    nodes = frame(city=list("qwertyui"), x=range(8))
    features = read(nodes, encode="city").features
    assert features[:, -1].tolist() == list(range(8))
    assert [int(row[:-1].argmax()) for row in features] == [sorted("qwertyui").index(city) for city in "qwertyui"]


def test_too_many_or_no_categories_are_refused(monkeypatch):
    monkeypatch.setattr(table_features, "MOST_CATEGORIES", 2)
    for cities in (["a", "b", "c"], pa.nulls(3, pa.string())):
        with pytest.raises(Refusal, match=r"column 'city' of .* has [03] categories, and from 1 to 2 can be") as caught:
            read(frame(city=cities), encode="city")
        assert caught.value.instead == {"exclude": ["city"]}


# filled


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ""])
@pytest.mark.parametrize(("fill", "value"), [("mean", 2), ("0", 0)])
def test_missing_numbers_are_filled_and_marked(tmp_path, suffix, fill, value):
    nodes = frame(x=[1.0, None, float("nan"), 3], y=[5, 6, 7, 8])
    graph = read(nodes if not suffix else written(tmp_path, nodes, suffix), fill=fill)
    assert graph.feature_names == ("x", "x is missing", "y")
    assert graph.features.tolist() == [[1, 0, 5], [value, 1, 6], [value, 1, 7], [3, 0, 8]]


def test_missing_truth_values_are_filled_too():
    assert read(frame(flag=[True, None, False]), fill="mean").features.tolist() == [[1, 0], [0.5, 1], [0, 0]]


def test_missing_numbers_are_refused_with_what_would_fill_them():
    with pytest.raises(Refusal, match=r"feature 'x' of node 'b' is missing.*with --fill mean or fill='mean'") as caught:
        read(frame(y=[1, 2], x=[1, None]))
    assert caught.value.instead == {"fill": ["mean"]}
    with pytest.raises(UserError, match="fill is 'median': missing numbers become the column's 'mean' or '0'"):
        read(frame(x=[1, 2]), fill="median")


def test_a_mean_is_that_of_numbers_that_a_feature_can_hold():
    with pytest.raises(UserError, match=r"feature 'x' of node 'a' is 1e\+300; 1 such"):
        read(frame(x=[1e300, None, 2]), fill="mean")


def test_infinite_numbers_are_refused_though_missing_ones_are_filled():
    with pytest.raises(UserError, match="feature 'x' of node 'c' is inf; 1 such"):
        read(frame(x=[1, None, float("inf")]), fill="mean")


# lists beside numbers


def test_lists_stand_beside_numbers_and_name_their_entries():
    nodes = frame(x=[1, 2], v=[[3.0, 4.0], [5.0, 6.0]], y=[7, 8], w=[[9], [10]])
    graph = read(nodes)
    assert graph.feature_names == ("x", "v[0]", "v[1]", "y", "w[0]")
    assert graph.features.tolist() == [[1, 3, 4, 7, 9], [2, 5, 6, 8, 10]]
    with pytest.raises(UserError, match="entry 1 of feature 'v' of node 'b' is missing"):
        read(frame(x=[1, 2], v=[[3.0, 4.0], [5.0, None]]))


def test_two_features_of_one_name_are_refused():
    with pytest.raises(UserError, match=r"two features of .* would be called 'v\[0\]': rename a column"):
        read(pa.table({"id": ["a", "b"], "v": [[1], [2]], "v[0]": [3, 4]}))


# left out and refused


def test_columns_may_be_left_out():
    nodes = frame(x=[1, 2], name=["Ann", "Bob"], day=pa.array([1, 2], pa.date32()))
    assert read(nodes, exclude=["name", "day"]).feature_names == ("x",)
    for options, message in [
        ({"exclude": "nome"}, "no column 'nome': it has id, x, name, day. Did you mean 'name'"),
        ({"exclude": "x", "features": ["x"]}, "column 'x' is to be left out and to be a feature"),
        ({"exclude": "x", "encode": "x"}, "column 'x' is to be left out and to be a feature"),
    ]:
        with pytest.raises(UserError, match=message):
            read(nodes, **options)


def test_dates_are_refused_with_the_reason():
    days = pa.array([1, 2], pa.date32())
    with pytest.raises(Refusal, match=r"day \(DATE\).*a date or time is no number that nodes can be compared by"):
        read(frame(day=days))
    with pytest.raises(Refusal, match=r"'day' of .* holds DATE: it must hold numbers; a date or time is no number"):
        read(frame(day=days), features=["day"])
    with pytest.raises(Refusal, match=r"'day' of .* holds DATE: a date or time is no number"):
        read(frame(day=days), encode=["day"])


def test_dates_in_a_csv_are_refused_too(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,day\na,2020-01-31\nb,\n")
    with pytest.raises(Refusal, match=r"day \(TIMESTAMP\).*a date or time is no number"):
        read(tmp_path / "nodes.csv")


def test_a_refusal_knows_what_would_be_read():
    names = [f"n{number}" for number in range(8)]
    nodes = frame(city=["Oslo"] * 8, name=names, day=pa.array(range(8), pa.date32()), x=[1, None] * 4)
    with pytest.raises(Refusal) as caught:
        read(nodes)
    assert caught.value.instead == {"encode": ["city", "name"], "exclude": ["day"], "fill": ["mean"]}
    graph = read(nodes, encode=["city", "name"], exclude=["day"], fill="mean")
    assert graph.num_features == 1 + 8 + 2


def test_text_of_which_every_node_has_its_own_is_not_worth_encoding(monkeypatch):
    monkeypatch.setattr(table_features, "_FEW_CATEGORIES", 3)
    with pytest.raises(Refusal) as caught:
        read(frame(name=list("wxyz"), city=list("zzyy")))
    assert caught.value.instead == {"encode": ["city"], "exclude": ["name"]}


# like an earlier graph


FIRST = {
    "x": [1.0, None, 5],
    "city": ["Rome", "Oslo", "Oslo"],
    "v": [[1, 2]] * 3,
    "label": ["b", "a", "b"],
    "note": ["q", "r", "s"],
}


@pytest.fixture
def first(tmp_path):
    return read(frame(**FIRST), encode="city", fill="mean", exclude="note", out=tmp_path / "first")


LATER = {"v": [[3, 4]] * 4, "note": ["s"] * 4, "city": ["Bonn", "Rome", None, "Bonn"], "x": [None, 2, 3, None]}


@pytest.mark.parametrize("by", ["graph", "opened", "folder"])
def test_later_tables_give_the_same_features(first, tmp_path, by):
    like = {"graph": first, "opened": load_graph(tmp_path / "first"), "folder": tmp_path / "first"}[by]
    with pytest.warns(UserWarning, match="values of categories not seen before, which are zeros: city 2"):
        graph = read(frame(**LATER), like=like)
    assert graph.feature_names == first.feature_names
    assert graph.feature_names == ("x", "x is missing", "city=Oslo", "city=Rome", "v[0]", "v[1]")
    assert graph.features.tolist() == [
        [3, 1, 0, 0, 3, 4],
        [2, 0, 0, 1, 3, 4],
        [3, 0, 0, 0, 3, 4],
        [3, 1, 0, 0, 3, 4],
    ]
    assert graph.learned.columns == first.learned.columns


def test_the_same_tables_are_read_as_they_were(first, tmp_path, recwarn):
    nodes = frame(
        x=[1.0, None, 5], city=["Rome", "Oslo", "Oslo"], v=[[1, 2]] * 3, label=["b", "a", "b"], note=["p"] * 3
    )
    again = read(nodes, like=first)
    assert again.fingerprint == first.fingerprint
    assert (again.labels.tolist(), again.class_names) == (first.labels.tolist(), first.class_names)
    assert again.learned == first.learned
    assert [str(warning.message) for warning in recwarn] == []


def test_a_number_missing_only_later_is_filled_too():
    first = read(frame(x=[1, 3]), fill="mean")
    assert first.feature_names == ("x",)
    assert read(frame(x=[None, 3]), like=first).features.tolist() == [[2], [3]]
    with pytest.raises(UserError, match="feature 'x' of node 'a' is missing") as caught:
        read(frame(x=[None, 3]), like=read(frame(x=[1, 3])))
    assert "--fill" not in str(caught.value)


def test_columns_that_later_tables_lack_are_named(first):
    with pytest.raises(UserError, match="lacks columns that are features of the graph to be like: x, v; it has id, ci"):
        read(frame(city=["Rome"] * 2, w=[1, 2]), like=first)
    with pytest.raises(UserError, match="give a node table"):
        read_tables(EDGES, like=first)
    with pytest.raises(UserError, match=r"column 'v' of .* holds BIGINT, but was a list before"):
        read(frame(**LATER | {"v": [1, 2, 3, 4]}), like=first)


@pytest.mark.filterwarnings("ignore:values of categories")
def test_columns_that_are_new_are_left_out_and_said(first):
    with pytest.warns(UserWarning, match="columns not seen before, which are left out: salary$"):
        assert read(frame(**LATER, salary=[1, 2, 3, 4]), like=first).feature_names == first.feature_names


def test_a_column_that_meant_something_else_is_not_new(recwarn):
    nodes = frame(x=range(8), year=range(2010, 2018))
    assert read(nodes, like=read(nodes, train_before=("year", 2013))).feature_names == ("x",)
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.filterwarnings("ignore:values of categories")
def test_classes_keep_their_order_and_new_ones_follow(first):
    with pytest.warns(UserWarning, match="classes not seen before: A"):
        graph = read(frame(**LATER, label=["b", "A", None, "a"]), like=first)
    assert (graph.labels.tolist(), graph.class_names) == ([1, 2, -1, 0], ("a", "b", "A"))
    numbered = read(frame(label=[0, 1, 2]))
    later = read(frame(label=[2, 1, None]), like=numbered)
    assert (later.labels.tolist(), later.class_names) == ([2, 1, -1], None)


def spelled(folder, values, column):
    """A CSV of one column whose values stand there as they are written here."""
    rows = "".join(f"{node},{value}\n" for node, value in zip("abcd", values, strict=True))
    (folder / "nodes.csv").write_text(f"id,{column}\n{rows}")
    return folder / "nodes.csv"


SPELLINGS = [
    (["1.0", "2.0", "", "1.0"], ["1.0", "2.0", "unknown", "1.0"], [0, 1, 2, 0]),
    (["1.0", "2.0", "", "1.0"], ["1", "02", "nan", "2.00"], [0, 2, -1, 1]),
    (["1.0", "2.0", "x", "2.5"], ["1.0", "2.0", "", "2.5"], [0, 1, -1, 2]),
    (["2020-01-01", "x", "", "x"], ["2020-01-01", "", "2020-01-01", ""], [0, -1, 0, -1]),
    (["False", "True", "", "True"], ["true", "false", "TRUE", "text"], [1, 0, 1, 2]),
    (["true", "maybe", "", "true"], ["true", "TRUE", "", "true"], [1, 2, -1, 1]),
]


@pytest.mark.filterwarnings("ignore:.* not seen before")
@pytest.mark.parametrize(("before", "later", "expected"), SPELLINGS)
def test_values_spelled_as_before_are_known_whatever_else_their_column_holds(tmp_path, before, later, expected):
    first = read(spelled(tmp_path, before, "label"))
    assert read(spelled(tmp_path, later, "label"), like=first).labels.tolist() == expected
    first = read(spelled(tmp_path, before, "c"), encode="c")
    features = read(spelled(tmp_path, later, "c"), like=first).features
    known = [place if place < first.num_features else -1 for place in expected]
    assert [int(row.argmax()) if row.any() else -1 for row in features] == known


def test_a_frame_of_fractions_holds_categories_that_were_text():
    first = read(frame(c=["1.0", "2.0", "x"]), encode="c")
    assert read(frame(c=[2.0, 1.0, None]), like=first).features.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert read(frame(c=pa.nulls(3)), like=first).features.tolist() == [[0, 0, 0]] * 3


def test_what_is_no_imported_graph_is_nothing_to_be_like():
    for given, kind in ((EDGES, "Table"), (3, "int"), ({}, "dict")):
        with pytest.raises(UserError, match=f"like is a {kind}: give a graph that read_tables made, or its folder"):
            read(frame(x=[1, 2]), like=given)


def test_a_graph_to_be_like_decides_alone(first):
    for option in ({"features": ["x"]}, {"encode": "city"}, {"fill": "0"}, {"exclude": "x"}):
        with pytest.raises(UserError, match="a graph to be like decides on features"):
            read(frame(**LATER), like=first, **option)
    with pytest.raises(UserError, match="was not read from tables"):
        read(frame(**LATER), like=load_graph("cora"))


# several labels


@pytest.mark.parametrize("form", ["lists", "csv", "python csv"])
def test_lists_of_labels_are_a_matrix_of_zeros_and_ones(tmp_path, form):
    lists = [["b", "a"], [], None, ["c"]]
    nodes = frame(label=lists)
    if form != "lists":
        mark = "'" if form == "python csv" else ""
        texts = [
            "" if each is None else "[" + ", ".join(f"{mark}{name}{mark}" for name in each) + "]" for each in lists
        ]
        nodes = written(tmp_path, frame(label=texts), ".csv")
    graph = read(nodes, out=tmp_path / "graph")
    assert graph.class_names == ("a", "b", "c")
    assert graph.labels.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert graph.features is None


def test_lists_of_numbers_are_classes_in_their_order():
    graph = read(frame(label=[[10, 9], [9], [-1, 100]]))
    assert (graph.class_names, graph.labels.tolist()) == (("9", "10", "100"), [[1, 1, 0], [1, 0, 0], [0, 0, 1]])


def test_lists_of_a_zero_or_one_for_each_label_are_refused():
    with pytest.raises(UserError, match=r"'label' of node 'b', \['0', '1', '0'\], names a label twice \(1 such"):
        read(frame(label=[[0, 1], [0, 1, 0]]))


def test_one_label_and_lists_of_them_are_not_alike():
    with pytest.raises(UserError, match="holds one label a node, but the graph to be like has lists of labels"):
        read(frame(label=["a", "b"]), like=read(frame(label=[["a"], ["b"]])))


def test_features_are_written_in_pieces_into_a_folder(tmp_path):
    nodes = frame(x=[1, 2], city=["p", "q"])
    graph = read(nodes, encode="city", out=tmp_path / "graph")
    assert isinstance(graph.features, np.memmap)
