import gzip

import networkx
import pytest

from nagphormer import UserError, read_tables

pytest.importorskip("duckdb", reason="reading tables needs DuckDB")


def write(path, text):
    if path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
            file.write(text)
    else:
        path.write_text(text, encoding="utf-8", newline="")
    return path


def edges_of(path, **options):
    graph = read_tables(path, **options)
    ids = graph.node_ids.tolist()
    rows = [range(graph.indptr[node], graph.indptr[node + 1]) for node in range(graph.num_nodes)]
    return {
        (ids[u], ids[graph.indices[at]], *([] if graph.weights is None else [graph.weights[at]]))
        for u, row in enumerate(rows)
        for at in row
        if u < graph.indices[at]
    }


SNAP = "# Directed graph (each unordered pair of nodes is saved once)\n# FromNodeId\tToNodeId\n0\t4\n4\t9\n"
LISTS = {
    "snap.txt": SNAP,
    "snap.txt.gz": SNAP,
    "snap.tsv": SNAP,
    "snap.csv": SNAP.replace("\t", ","),
    "windows.txt": SNAP.replace("\n", "\r\n"),
    "konect.tsv": "% sym unweighted\n% 2 3 3\n0 4\n4 9\n",
    "between.txt": "# first\n0 4\n\n# of three words\n4 9\n# end\n",
    "plain.txt": "0 4\n4 9\n",
    "plain.edgelist": "0\t4\n4\t9\n",
    "plain.csv": "0,4\n4,9\n",
    "semicolon.csv": "0;4\n4;9\n",
    "aligned.txt": "  0    4\n  4 \t 9  \n",
    "named.txt": "# made by hand\nsource target\n0 4\n4 9\n".replace(" ", "\t"),
    "networkx.edgelist": "0 4 {}\n4 9 {'color': 'a b'}\n",
    "times.txt": "0 4 12:30\n4 9 12:31\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_edges_are_read_without_a_header(tmp_path, name):
    assert edges_of(write(tmp_path / name, LISTS[name])) == {(0, 4), (4, 9)}


@pytest.mark.parametrize("name", ["names.edgelist", "names.edges.gz", "names.el"])
def test_names_are_ids_of_a_list_too(tmp_path, name):
    assert edges_of(write(tmp_path / name, "ann bob\nbob #cem\n")) == {("ann", "bob"), ("#cem", "bob")}


@pytest.mark.parametrize(
    "text", ["# w\n0 4 0.5\n4 9 2\n", "0,4,0.5\n4,9,2\n", "0 4 {'weight': 0.5}\n4 9 {'weight': 2}\n"]
)
def test_a_third_column_of_numbers_is_the_weight_if_asked_for(tmp_path, text):
    path = write(tmp_path / "edges.txt", text)
    assert edges_of(path) == {(0, 4), (4, 9)}
    assert edges_of(path, weight="weight") == {(0, 4, 0.5), (4, 9, 2)}


def test_what_networkx_writes_is_read(tmp_path):
    graph = networkx.path_graph(["a", "b", "c"])
    networkx.write_edgelist(graph, tmp_path / "plain.edgelist")
    networkx.set_edge_attributes(graph, {("a", "b"): 2.5, ("b", "c"): 3}, "weight")
    networkx.write_edgelist(graph, tmp_path / "attributes.edgelist")
    networkx.write_weighted_edgelist(graph, tmp_path / "weighted.edgelist")
    assert edges_of(tmp_path / "plain.edgelist") == {("a", "b"), ("b", "c")}
    for name in ("attributes", "weighted"):
        assert edges_of(tmp_path / f"{name}.edgelist", weight="weight") == {("a", "b", 2.5), ("b", "c", 3)}


def test_a_header_of_other_names_is_none_of_the_edges(tmp_path):
    for text in ("from,to\n0,1\n", "# comment\nfrom\tto\n0\t1\n", "from to\n0 1\n"):
        with pytest.raises(UserError, match="has no column 'source': it has from"):
            read_tables(write(tmp_path / "edges.txt", text))


@pytest.mark.parametrize("text", ["ann\tbob\nbob\tcem\n", "ann bob\nbob cem\n", "ann,bob\nbob,cem\n"])
def test_names_at_the_top_may_be_those_of_columns_so_that_they_are_no_edge(tmp_path, text):
    with pytest.raises(UserError, match=r"no column 'source'.*If its first line is an edge, end .* in \.edgelist"):
        read_tables(write(tmp_path / "edges.txt", text))


def test_the_columns_of_a_list_have_names_of_their_own(tmp_path):
    path = write(tmp_path / "edges.txt", "0 1 5\n1 2 7\n")
    with pytest.raises(UserError, match=r"'user': it has source, target, weight\. The file has no header"):
        read_tables(path, source="user")


def test_a_line_of_a_list_without_a_second_end_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"edge 2 of .*, with source '1', has no target"):
        read_tables(write(tmp_path / "edges.txt", "0 1\n1\n"))
    with pytest.raises(UserError, match="Could not convert string 'much'"):
        read_tables(write(tmp_path / "edges.txt", "0 1 2\n1 2 much\n"), weight="weight")


def test_a_header_may_begin_with_a_mark_of_comments(tmp_path):
    path = write(tmp_path / "edges.csv", "#source,target\n#a,b\n")
    assert edges_of(path, source="#source") == {("#a", "b")}


def test_files_of_comments_and_matrices_are_refused(tmp_path):
    with pytest.raises(UserError, match="holds comments only"):
        read_tables(write(tmp_path / "edges.txt", "# nothing\n"))
    with pytest.raises(UserError, match=r"is a matrix: read it with from_scipy\(scipy\.io\.mmread"):
        read_tables(write(tmp_path / "edges.mtx", "%%MatrixMarket matrix coordinate\n2 2 1\n1 2\n"))


def test_a_list_of_several_files_may_have_comments_in_each(tmp_path):
    write(tmp_path / "part-0.txt", SNAP)
    write(tmp_path / "part-1.txt", "# one\n9\t0\n")
    assert edges_of(tmp_path / "part-*.txt") == {(0, 4), (4, 9), (0, 9)}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson", "rows.jsonl.gz"])
def test_json_lines_are_read(tmp_path, name):
    edges = write(tmp_path / f"edges-{name}", '{"source": "007", "target": "b"}\n{"target": "c", "source": "b"}\n')
    rows = '{"id": "b", "label": true, "v": [1, 2], "x": 1}\n{"id": "007", "v": [3, 4.5], "x": 2}\n'
    nodes = write(tmp_path / f"nodes-{name}", rows + '{"id": "c", "label": false, "v": [0, 0], "x": 3}\n')
    graph = read_tables(edges, nodes, features="v")
    assert graph.node_ids.tolist() == ["b", "007", "c"]
    assert graph.features.tolist() == [[1, 2], [3, 4.5], [0, 0]]
    assert (graph.labels.tolist(), graph.class_names) == ([1, -1, 0], ("False", "True"))


def test_json_lines_keep_what_looks_like_a_date_and_mixed_ids(tmp_path):
    rows = '{"source": 7, "target": "2020-01-01x", "day": "2020-01-01"}\n{"source": "b", "target": "7"}\n'
    assert edges_of(write(tmp_path / "edges.jsonl", rows)) == {("2020-01-01x", "7"), ("7", "b")}


def test_a_broken_line_of_json_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*edges\.jsonl"):
        read_tables(write(tmp_path / "edges.jsonl", '{"source": 1, "target": 2}\n{"source": 1,\n'))
