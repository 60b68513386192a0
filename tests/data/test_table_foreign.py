import bz2
import gzip
import lzma
import zipfile

import pytest

from nagphormer import UserError, read_tables
from nagphormer.data.table_foreign import read_beginning

pytest.importorskip("duckdb", reason="reading tables needs DuckDB")

EDGES = b"source,target\n0,1\n"
FOREIGN = {
    "edges.json": (b'{"source": 0, "target": 1}\n', "is JSON: name it .jsonl, with one object a line"),
    "array.txt": (b'[\n {"source": 0}]', "is JSON: name it .jsonl, with one object a line"),
    "links.json.gz": (b"{}", "is JSON: name it .jsonl"),
    "edges.xlsx": (b"PK\x03\x04", "is a worksheet: give the frame that pandas.read_excel makes of it"),
    "edges.h5": (b"\x89HDF\r\n", "is no text: give the frame that pandas makes of it"),
    "edges.pkl": (b"\x80\x04abc", "is no text: give the frame that pandas makes of it"),
    "edges.graphml": (b"<?xml version='1.0'?><graphml/>", "is no table: read it with NetworkX"),
    "drawn.txt": (b"<graphml xmlns='x'>", "is no table: read it with NetworkX"),
    "page.csv": (b"\n<!DOCTYPE html>", "is no table: read it with NetworkX"),
    "pajek.txt": (b'*Vertices 2\n1 "a"\n', "is no table: read it with NetworkX"),
    "graph.npz": (b"PK\x03\x04", "is no table but arrays: give it to load_graph"),
    "edges.txt.bz2": (bz2.compress(EDGES), "is packed by bzip2, and only files that end in .gz or .zst are unpacked"),
    "edges.txt.xz": (lzma.compress(EDGES), "is packed by xz"),
    "edges.csv": (gzip.compress(EDGES), "is packed by gzip"),
    "utf16.csv": (EDGES.decode().encode("utf-16"), "is not utf-8 text: .* save it as UTF-8"),
    "latin.csv": ("caf\xe9 b\n".encode("latin-1"), "is not utf-8 text: .* at byte 3"),
    "zero.txt": (b"0 1\n\0 2\n", "is no text: it holds bytes of zero"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_table_of_text_is_refused_with_what_to_do(tmp_path, name):
    content, message = FOREIGN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_tables(tmp_path / name)
    assert ".edgelist" not in str(caught.value)


def test_an_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "edges.zip", "w") as archive:
        archive.writestr("edges.csv", EDGES)
    with pytest.raises(UserError, match="is packed by zip"):
        read_tables(tmp_path / "edges.zip")


def test_text_packed_with_zstd_is_read(tmp_path):
    pa = pytest.importorskip("pyarrow")
    (tmp_path / "edges.csv.zst").write_bytes(pa.compress(EDGES, codec="zstd", asbytes=True))
    assert read_tables(tmp_path / "edges.csv.zst").num_edges == 1


def test_a_letter_cut_at_the_end_of_the_beginning_is_no_fault(tmp_path):
    (tmp_path / "long.txt").write_bytes(b"a\n" + b"b" * ((1 << 20) - 3) + "é".encode())
    assert read_beginning(str(tmp_path / "long.txt")).endswith("b")


def test_ids_that_are_addresses_are_no_xml(tmp_path):
    (tmp_path / "web.edgelist").write_text("<http://a> <http://b>\n")
    assert read_tables(tmp_path / "web.edgelist").node_ids.tolist() == ["<http://a>", "<http://b>"]
