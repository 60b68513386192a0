import gzip
import json

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
    "spaced.edgelist": "0, 4\n4 ,9\n",
    "spaced.csv": "0; 4\n4 ;\t9\n",
    "blank.csv": "\n \n0,4\n4,9\n",
    "blank and comment.csv": "\n# edges\n\n0,4\n4,9\n",
    "header of words.txt": "source target\n0 4\n4 9\n",
    "comment and header of words.txt": "# c\n\nsource   target\n0 4\n4 9\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_edges_are_read_without_a_header(tmp_path, name):
    assert edges_of(write(tmp_path / name, LISTS[name])) == {(0, 4), (4, 9)}


@pytest.mark.parametrize("text", ["{0}source,target\n0,1\n1,2\n", "# c\n{0}source\ttarget\n0\t1\n1\t2\n"])
@pytest.mark.parametrize("blank", ["\n", "\n\n", " \t\n"])
def test_blank_lines_before_the_names_of_columns_are_passed_over(tmp_path, text, blank):
    assert edges_of(write(tmp_path / "edges.csv", text.format(blank))) == {(0, 1), (1, 2)}
    nodes = write(tmp_path / "nodes.csv", blank + "id,x\n2,5\n1,6\n0,7\n")
    assert read_tables(tmp_path / "edges.csv", nodes).features.tolist() == [[5], [6], [7]]


@pytest.mark.parametrize("text", ["", "\n", " \n\t\r\n"])
def test_a_file_without_a_line_that_counts_is_empty(tmp_path, text):
    empty = write(tmp_path / "empty.csv", text)
    with pytest.raises(UserError, match=r"empty\.csv is empty: its first line must name the columns"):
        read_tables(empty)
    with pytest.raises(UserError, match=r"empty\.csv is empty"):
        read_tables(write(tmp_path / "edges.csv", "source,target\n0,1\n"), empty)


def test_blank_lines_in_a_table_of_one_column_are_passed_over(tmp_path):
    edges = write(tmp_path / "edges.csv", "source,target\nb,a\n")
    assert read_tables(edges, write(tmp_path / "nodes.csv", "id\n\nb\n\na\n\n")).node_ids.tolist() == ["b", "a"]


def test_white_space_around_ids_labels_and_names_of_columns_is_no_part_of_them(tmp_path):
    edges = write(tmp_path / "edges.csv", "source, target \nann lee, bob\n bob ,\tcem\n")
    assert edges_of(edges) == {("ann lee", "bob"), ("bob", "cem")}
    nodes = write(tmp_path / "nodes.csv", "id , label, city,split\nbob, x, Oslo,\ttest\n ann lee,x ,,\ncem, , Oslo, \n")
    graph = read_tables(edges, nodes, encode="city")
    assert (graph.labels.tolist(), graph.class_names) == ([0, 0, -1], ("x",))
    assert (graph.features.tolist(), graph.feature_names) == ([[1], [0], [1]], ("city=Oslo",))
    assert {split: nodes.tolist() for split, nodes in graph.splits.items()} == {"test": [0]}


@pytest.mark.parametrize("name", ["names.edgelist", "names.edges.gz", "names.el"])
def test_names_are_ids_of_a_list_too(tmp_path, name):
    assert edges_of(write(tmp_path / name, "ann bob\nbob #cem\n")) == {("ann", "bob"), ("#cem", "bob")}


TABBED = "ann lee\tbob ray\nbob ray\tcem\n"


@pytest.mark.parametrize("text", [TABBED, "# c\n" + TABBED, TABBED.replace("bob ray", '"bob ray"')])
def test_a_tab_parts_names_that_hold_blanks(tmp_path, text):
    assert edges_of(write(tmp_path / "names.edgelist", text)) == {("ann lee", "bob ray"), ("bob ray", "cem")}


def test_a_tab_behind_whole_numbers_is_white_space(tmp_path):
    assert edges_of(write(tmp_path / "konect.txt", "% c\n0 4\t2\n4 9\t3\n"), weight="weight") == {(0, 4, 2), (4, 9, 3)}


@pytest.mark.parametrize("text", ['"ann lee" "bob ray"\n', 'ann bob\nbob "cem x"\n', 'ann bob\n "cem" dan\n'])
def test_ids_in_quotes_are_refused_where_white_space_parts_them(tmp_path, text):
    with pytest.raises(UserError, match="an id in quotes: part the columns of such a list by a comma or a tab"):
        read_tables(write(tmp_path / "names.edgelist", text))


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


def test_weights_that_networkx_gives_some_edges_are_found_below_the_first(tmp_path):
    path = write(tmp_path / "edges.edgelist", "0 4 {}\n4 9 {'weight': 2}\n")
    assert edges_of(path) == {(0, 4), (4, 9)}
    with pytest.raises(UserError, match="from '0' to '4', has no weight; 1 such edges"):
        read_tables(path, weight="weight")


def test_weights_that_are_numbers_of_numpy_are_read(tmp_path):
    rows = "0 4 {'weight': np.float64(2.5)}\n4 9 {'c': 'd', 'weight': np.int64(3)}\n"
    assert edges_of(write(tmp_path / "edges.edgelist", rows), weight="weight") == {(0, 4, 2.5), (4, 9, 3)}


def test_a_header_of_other_names_is_none_of_the_edges(tmp_path):
    for text in ("from,to\n0,1\n", "# comment\nfrom\tto\n0\t1\n", "from to\n0 1\n"):
        with pytest.raises(UserError, match="has no column 'source': it has from"):
            read_tables(write(tmp_path / "edges.txt", text))


@pytest.mark.parametrize("text", ["ann\tbob\nbob\tcem\n", "ann bob\nbob cem\n", "ann,bob\nbob,cem\n"])
def test_names_at_the_top_may_be_those_of_columns_so_that_they_are_no_edge(tmp_path, text):
    with pytest.raises(UserError, match=r"no column 'source'.*If its first line is an edge, end .* in \.edgelist"):
        read_tables(write(tmp_path / "edges.txt", text))


@pytest.mark.parametrize("mark", ["\t", " ", ","])
def test_words_above_numbers_are_names_of_columns_which_can_be_named(tmp_path, mark):
    path = write(tmp_path / "edges.txt", f"FromNodeId{mark}ToNodeId\n0{mark}4\n4{mark}9\n")
    with pytest.raises(UserError, match=r"it has FromNodeId, ToNodeId\..*name it with --source or source=\.$"):
        read_tables(path)
    assert edges_of(path, source="FromNodeId", target="ToNodeId") == {(0, 4), (4, 9)}


def test_a_first_line_too_long_to_be_parted_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot part the first line of .*edges\.txt into columns"):
        read_tables(write(tmp_path / "edges.txt", "a" * 140_000 + ",b\n"))
    with pytest.raises(UserError, match=r"the first line of .*edges\.txt is longer than 1,048,576 bytes"):
        read_tables(write(tmp_path / "edges.txt", "0 " + "1" * 1_100_000 + "\n"))


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


@pytest.mark.parametrize("text", ["", "\n", '[{"source": 0, "target": 1}]', '[\n{"source": 0}\n]', "1\n2\n"])
def test_json_that_is_no_object_a_line_is_refused(tmp_path, text):
    with pytest.raises(UserError, match=r"edges\.jsonl is no file of JSON lines: it must hold one object a line"):
        read_tables(write(tmp_path / "edges.jsonl", text))


@pytest.mark.parametrize("twin", ['{"id": 0, "x": 1, "X": 2}', '{"id": 0, "x": 1}\n{"id": 1, "X": 1}'])
def test_keys_of_json_that_differ_in_case_alone_are_refused(tmp_path, twin):
    edges = write(tmp_path / "edges.jsonl", '{"source": 0, "target": 0}\n')
    with pytest.raises(UserError, match=r"nodes\.jsonl names column '[xX]' twice"):
        read_tables(edges, write(tmp_path / "nodes.jsonl", twin))
    nodes = write(tmp_path / "nodes.jsonl", '{"id": 0, "x": 1, "x_1": 2}\n')
    assert read_tables(edges, nodes).feature_names == ("x", "x_1")


def test_keys_of_json_without_a_name_are_refused(tmp_path):
    with pytest.raises(UserError, match="one JSON object a line, in which every value has a name"):
        read_tables(write(tmp_path / "edges.jsonl", '{"source": 0, "target": 1, "": 2}\n'))


def test_parts_of_json_lines_may_be_empty_and_lines_long(tmp_path):
    write(tmp_path / "edges-0.jsonl", "")
    write(tmp_path / "edges-1.jsonl", '{"source": 0, "target": 1, "note": "' + "n" * 2_000_000 + '"}\n')
    assert edges_of(tmp_path / "edges-*.jsonl") == {(0, 1)}


def test_json_lines_of_many_columns_are_columns(tmp_path):
    edges = write(tmp_path / "edges.jsonl", '{"source": 0, "target": 1}\n')
    rows = [json.dumps({"id": node} | {f"x{column}": column for column in range(300)}) for node in (0, 1)]
    assert read_tables(edges, write(tmp_path / "nodes.jsonl", "\n".join(rows))).num_features == 300


@pytest.mark.parametrize("value", ['["a"]', "[]", '{"a": 1}'])
def test_lists_and_objects_beside_single_values_are_no_labels(tmp_path, value):
    edges = write(tmp_path / "edges.jsonl", '{"source": 0, "target": 1}\n')
    nodes = write(tmp_path / "nodes.jsonl", f'{{"id": 0, "label": "b"}}\n{{"id": 1, "label": {value}}}\n')
    with pytest.raises(UserError, match=r"'label' of .* holds lists or objects beside other values: it must"):
        read_tables(edges, nodes)
    with pytest.raises(UserError, match=r"'label' of .* holds lists or objects beside other values: ids are"):
        read_tables(edges, nodes, id="label", label=None)


def test_a_broken_line_of_json_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*edges\.jsonl"):
        read_tables(write(tmp_path / "edges.jsonl", '{"source": 1, "target": 2}\n{"source": 1,\n'))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Evelyn Jefferson E1 {}\nLaura Mandeville E2 {}\n", "the third word of the first edge .* is 'E1'"),
        ("0 {}\n1 {}\n", "seems to be a list of neighbors: read it with NetworkX"),
        ("% bip unweighted\n1 1\n2 1\n", "joins nodes of two kinds"),
    ],
)
def test_lists_that_mean_another_graph_are_refused(text, said, tmp_path):
    (tmp_path / "list.edgelist").write_text(text)
    with pytest.raises(UserError, match=said):
        read_tables(tmp_path / "list.edgelist")


def test_a_table_of_nodes_without_names_of_columns_is_said_to_lack_them(tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n")
    (tmp_path / "labels.txt").write_text("0 3\n1 4\n2 3\n")
    with pytest.raises(UserError, match="Its first line seems to be a row: put the columns' names above it"):
        read_tables(tmp_path / "edges.txt", tmp_path / "labels.txt")
