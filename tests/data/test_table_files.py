import gzip

import pyarrow as pa
import pyarrow.parquet
import pytest

from nagphormer import UserError, read_tables
from nagphormer.data.table_files import find_files
from nagphormer.data.table_sql import is_list, is_number

pytest.importorskip("duckdb", reason="reading tables needs DuckDB")

EDGES = "source,target\nb,a\na,c\n"


def write_parquet(path, source, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.table({"source": source, "target": target}), path)


def edges_of(path):
    graph = read_tables(path)
    ids = graph.node_ids.tolist()
    return {
        (ids[u], ids[v])
        for u in range(graph.num_nodes)
        for v in graph.indices[graph.indptr[u] : graph.indptr[u + 1]]
        if u < v
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("edges.csv", EDGES),
        ("edges.tsv", EDGES.replace(",", "\t")),
        ("edges.csv", EDGES.replace(",", ";")),
        ("edges.txt", EDGES.replace(",", "|")),
        ("windows.csv", EDGES.replace("\n", "\r\n")),
        ("excel.csv", "\ufeff" + EDGES),
        ("quoted.csv", '"source","target"\n"b","a"\n"a","c"\n'),
        ("it's [1] *.csv", EDGES),
        ("EDGES.CSV", EDGES),
        ("a=1/edges.csv", EDGES),
        ("gaps.csv", "source,target\nb,a\n\na,c\n"),
    ],
)
def test_csv_files_of_any_dress_are_read(tmp_path, name, text):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, newline="")
    assert edges_of(path) == {("a", "b"), ("a", "c")}


def test_a_file_is_taken_by_its_name_before_it_is_a_pattern(tmp_path):
    (tmp_path / "part1.csv").write_text("source,target\nx,y\n")
    (tmp_path / "part[1].csv").write_text(EDGES)
    assert edges_of(tmp_path / "part[1].csv") == {("a", "b"), ("a", "c")}


def test_a_compressed_csv_is_read(tmp_path):
    with gzip.open(tmp_path / "edges.csv.gz", "wt") as file:
        file.write(EDGES)
    assert edges_of(tmp_path / "edges.csv.gz") == {("a", "b"), ("a", "c")}


def test_ids_may_hold_what_a_sniffer_takes_for_syntax(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text('source,target\n#a,"b,c"\n"d ""e""",5" pipe\nf;g,h|i\n')
    assert edges_of(path) == {("#a", "b,c"), ('5" pipe', 'd "e"'), ("f;g", "h|i")}


@pytest.mark.parametrize("path", ["", "*.parquet", "**/*.parquet", "part-?.parquet"])
def test_a_folder_and_a_pattern_stand_for_their_files(tmp_path, path):
    write_parquet(tmp_path / "part-1.parquet", [3], [1])
    write_parquet(tmp_path / "part-0.parquet", [1], [2])
    (tmp_path / "_SUCCESS").touch()
    assert edges_of(tmp_path / path if path else tmp_path) == {(1, 2), (1, 3)}


def test_a_node_table_of_several_files_is_read_in_the_order_of_their_names(tmp_path):
    for part in (2, 0, 1):
        ids = [str(node) for node in range(part * 5000, part * 5000 + 5000)][::-1]
        (tmp_path / f"nodes-{part}.csv").write_text("id,x\n" + "".join(f"n{node},{node}\n" for node in ids))
    (tmp_path / "edges.csv").write_text("source,target\nn0,n9999\n")
    graph = read_tables(tmp_path / "edges.csv", tmp_path / "nodes-*.csv")
    expected = [node for part in range(3) for node in range(part * 5000, part * 5000 + 5000)[::-1]]
    assert graph.node_ids.tolist() == [f"n{node}" for node in expected]
    assert graph.features[:, 0].tolist() == expected


def test_columns_of_parquet_that_differ_in_case_alone_are_refused(tmp_path):
    write_parquet(tmp_path / "edges.parquet", [0], [1])
    for twins in (["x", "X"], ["x", "x"]):
        pa.parquet.write_table(pa.table([[0, 1], [1, 2], [3, 4]], ["id", *twins]), tmp_path / "nodes.parquet")
        with pytest.raises(UserError, match=r"nodes\.parquet names column 'x' twice"):
            read_tables(tmp_path / "edges.parquet", tmp_path / "nodes.parquet")


def test_a_partition_in_the_path_is_no_column(tmp_path):
    write_parquet(tmp_path / "day=3" / "edges.parquet", [0], [1])
    pa.parquet.write_table(pa.table({"id": [0, 1]}), tmp_path / "day=3" / "nodes.parquet")
    assert read_tables(tmp_path / "day=3" / "edges.parquet", tmp_path / "day=3" / "nodes.parquet").features is None


def test_a_missing_file_is_named_with_its_neighbor(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    with pytest.raises(UserError, match=r"no file .*edge\.csv: check the path\. Did you mean 'edges\.csv'"):
        find_files(tmp_path / "edge.csv")
    with pytest.raises(UserError, match=r"no file .*nowhere"):
        find_files(tmp_path / "nowhere" / "edges.csv")


def test_a_folder_without_parquet_is_refused(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    with pytest.raises(UserError, match=r"holds no \.parquet file"):
        find_files(tmp_path)


def test_a_pattern_of_two_kinds_is_refused(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    write_parquet(tmp_path / "edges.parquet", [0], [1])
    with pytest.raises(UserError, match="matches Parquet and text files"):
        read_tables(tmp_path / "edges.*")


def test_files_with_different_columns_are_refused(tmp_path):
    (tmp_path / "edges-0.csv").write_text(EDGES)
    (tmp_path / "edges-1.csv").write_text("target,source\nb,a\n")
    with pytest.raises(UserError, match=r"first lines of .*edges-0\.csv and .*edges-1\.csv differ"):
        read_tables(tmp_path / "edges-*.csv")


@pytest.mark.parametrize("twin", ["x", "X"])
def test_a_column_named_twice_is_refused(tmp_path, twin):
    (tmp_path / "edges.csv").write_text(f"source,target,x,{twin}\na,b,1,2\n")
    with pytest.raises(UserError, match="names column 'x' twice"):
        read_tables(tmp_path / "edges.csv")


@pytest.mark.parametrize("name", ["edges.parquet", "edges.csv.gz"])
@pytest.mark.parametrize("content", [b"", b"PAR1 nothing of use PAR1", b"source,target\n0,1\n"])
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}"):
        read_tables(tmp_path / name)


def test_a_parquet_file_damaged_inside_is_named(tmp_path):
    path = tmp_path / "edges.parquet"
    write_parquet(path, [f"node {i}" for i in range(1000)], [f"node {i}" for i in range(1, 1001)])
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"cannot read .*edges\.parquet"):
        read_tables(path)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "edges.csv").write_bytes("source,target\ncaf\xe9,b\n".encode("latin-1"))
    with pytest.raises(UserError, match="not utf-8"):
        read_tables(tmp_path / "edges.csv")


def test_types_are_told_apart():
    assert all(map(is_number, ["BIGINT", "FLOAT", "DECIMAL(18,3)", "BOOLEAN", "UHUGEINT"]))
    assert not any(map(is_number, ["VARCHAR", "FLOAT[]", "FLOAT[3]", "DATE"]))
    assert all(map(is_list, ["FLOAT[]", "DOUBLE[3]", "DECIMAL(4,1)[]", "INTEGER[]"]))
    assert not any(map(is_list, ["VARCHAR[]", "FLOAT[][]", "FLOAT", "STRUCT(a FLOAT)[]"]))


def test_columns_that_stand_in_the_names_of_folders_are_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\nc,d\n")
    nodes = pandas.DataFrame(
        {"id": list("abcd"), "x": [1.5, 2, 3, 4], "label": list("uvuv"), "split": ["train", "val", "test", "train"]}
    )
    nodes["year"] = [2001, 2002, 2001, 2002]
    nodes.to_parquet(tmp_path / "parts", partition_cols=["split", "year"])
    nodes.to_parquet(tmp_path / "whole.parquet", index=False)
    parted, whole = (read_tables(tmp_path / "edges.csv", tmp_path / name) for name in ("parts", "whole.parquet"))
    assert sorted(parted.feature_names) == sorted(whole.feature_names) == ["x", "year"]
    for graph in (parted, whole):
        rows = dict(
            zip(graph.node_ids, graph.features[:, [graph.feature_names.index(n) for n in ("x", "year")]], strict=True)
        )
        assert {name: row.tolist() for name, row in rows.items()} == {
            "a": [1.5, 2001],
            "b": [2, 2002],
            "c": [3, 2001],
            "d": [4, 2002],
        }
        splits = {name: sorted(graph.node_ids[idx]) for name, idx in graph.splits.items()}
        assert splits == {"train": ["a", "d"], "val": ["b"], "test": ["c"]}


def test_folders_above_all_files_of_a_table_are_no_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    folder = tmp_path / "run=3" / "nodes"
    folder.mkdir(parents=True)
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    for name in "ab":
        pandas.DataFrame({"id": [name], "x": [1.0]}).to_parquet(folder / f"{name}.parquet", index=False)
    assert read_tables(tmp_path / "edges.csv", folder).feature_names == ("x",)
    (tmp_path / "other").mkdir()
    pandas.DataFrame({"id": ["c"], "x": [1.0]}).to_parquet(tmp_path / "other" / "c.parquet", index=False)
    with pytest.raises(UserError, match="do not lie in folders of the same columns"):
        read_tables(tmp_path / "edges.csv", f"{tmp_path}/*/**/*.parquet")


def test_fill_may_be_the_number_zero(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    (tmp_path / "nodes.csv").write_text("id,age\n0,3\n1,\n")
    assert read_tables(tmp_path / "edges.csv", tmp_path / "nodes.csv", fill=0).features.tolist() == [[3, 0], [0, 1]]
