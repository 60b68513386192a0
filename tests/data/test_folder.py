import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from nagphormer import UserError, from_scipy, load_graph
from nagphormer.data.folder import open_graph, verify_graph

PATH = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def full_graph(**changes):
    parts = {
        "features": X,
        "labels": [1, -1, 0, 1],
        "splits": {"train": [0], "val": [], "test": [3, 2]},
        "node_ids": ["n1", "ä", "", "n4"],
        "class_names": ["no", "yes"],
        "name": "toy",
    }
    return from_scipy(PATH * 2.0, **(parts | changes))


@pytest.fixture
def path(tmp_path):
    full_graph().save(tmp_path / "graph")
    return tmp_path / "graph"


def assert_same(graph, other):
    np.testing.assert_array_equal(graph.adjacency().toarray(), other.adjacency().toarray())
    assert (graph.weights is None) == (other.weights is None)
    for features in (graph.features, other.features):
        assert sp.issparse(features) == sp.issparse(graph.features)
    if graph.features is not None:
        dense = [f.toarray() if sp.issparse(f) else np.asarray(f) for f in (graph.features, other.features)]
        np.testing.assert_array_equal(*dense)
        assert graph.features.dtype == other.features.dtype
    np.testing.assert_array_equal(graph.labels, other.labels)
    assert {s: list(n) for s, n in graph.splits.items()} == {s: list(n) for s, n in other.splits.items()}
    assert graph.node_ids.tolist() == other.node_ids.tolist()
    assert (graph.class_names, graph.name) == (other.class_names, other.name)
    assert graph.fingerprint == other.fingerprint
    assert repr(graph) == repr(other)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"features": None},
        {"features": X.astype(np.float16)},
        {"features": sp.csr_array(X)},
        {"labels": None, "class_names": None},
        {"labels": np.eye(4)[:, :2]},
        {"labels": ["b", None, "a", "b"], "class_names": None},
        {"node_ids": None},
        {"node_ids": [7, -5, 2**62, 0]},
        {"splits": {}},
        {"name": None},
    ],
    ids=str,
)
def test_what_is_saved_comes_back(changes, tmp_path):
    graph = full_graph(**changes)
    graph.save(tmp_path / "graph")
    opened = load_graph(tmp_path / "graph")
    assert_same(graph, opened)
    verify_graph(tmp_path / "graph")


def test_a_graph_without_edges_comes_back(tmp_path):
    graph = from_scipy(sp.csr_array((3, 3)))
    graph.save(tmp_path / "graph")
    assert_same(graph, open_graph(tmp_path / "graph"))


def test_an_opened_graph_can_be_saved_again(path, tmp_path):
    open_graph(path).save(tmp_path / "again")
    assert_same(open_graph(path), open_graph(tmp_path / "again"))


def test_arrays_are_memory_mapped(path):
    graph = open_graph(path)
    for array in (graph.indptr, graph.indices, graph.weights, graph.features, graph.labels, graph.splits["test"]):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def test_sparse_features_are_memory_mapped(tmp_path):
    full_graph(features=sp.csr_array(X)).save(tmp_path / "graph")
    values = open_graph(tmp_path / "graph").features.data
    while not isinstance(values, np.memmap):
        assert values.base is not None, "the values were copied"
        values = values.base


def test_the_fingerprint_is_read_and_not_computed(path, monkeypatch):
    monkeypatch.setattr("hashlib.sha256", None)
    assert len(open_graph(path).fingerprint) == 64


def test_the_stored_fingerprint_is_that_of_the_content(path):
    opened = open_graph(path)
    rebuilt = from_scipy(opened.adjacency(), np.array(opened.features))
    assert rebuilt.fingerprint == opened.fingerprint


def test_a_folder_holds_no_pickle_and_no_date(path):
    for file in path.glob("*.npy"):
        np.load(file, allow_pickle=False)
    assert sorted(file.suffix for file in path.iterdir()) == [".arrow", ".json"] + [".npy"] * 8
    assert set(json.loads((path / "graph.json").read_text())) == {
        *("kind", "format", "name", "num_nodes", "num_edges", "num_features", "num_classes", "class_names"),
        *("fingerprint", "files", "versions", "feature_names", "feature_kind", "learned"),
    }


def test_pickled_arrays_are_refused(path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was read",))

    np.save(path / "labels.npy", np.array([Bomb(), 1, 2, 3], object), allow_pickle=True)
    manifest = json.loads((path / "graph.json").read_text())
    manifest["files"]["labels.npy"]["bytes"] = (path / "labels.npy").stat().st_size
    (path / "graph.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"labels.npy is damaged"):
        open_graph(path)


@pytest.mark.parametrize("name", ["indices.npy", "features.npy", "node_ids.arrow"])
def test_a_truncated_file_is_refused(path, name):
    os.truncate(path / name, 50)
    with pytest.raises(UserError, match=rf"{name} has 50 bytes instead of \d+: it was cut short"):
        open_graph(path)
    with pytest.raises(UserError, match="cut short"):
        verify_graph(path)


def test_a_missing_file_is_refused(path):
    (path / "indptr.npy").unlink()
    with pytest.raises(UserError, match=r"indptr.npy is missing"):
        open_graph(path)


@pytest.mark.parametrize("name", ["features.npy", "node_ids.arrow"])
def test_a_flipped_byte_is_found_by_verify(path, name):
    content = bytearray((path / name).read_bytes())
    content[-9] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} is corrupt"):
        verify_graph(path)


@pytest.mark.parametrize("name", ["features.npy", "node_ids.arrow"])
def test_a_file_of_the_right_size_with_nonsense_is_refused(path, name):
    (path / name).write_bytes(bytes((path / name).stat().st_size))
    with pytest.raises(UserError, match=f"{name} is damaged"):
        open_graph(path)


@pytest.mark.parametrize("content", ["", "nonsense", "[1]", '{"kind": "tokens", "format": 1}'])
def test_a_damaged_manifest_is_refused(path, content):
    (path / "graph.json").write_text(content)
    with pytest.raises(UserError, match=r"damaged|is not a graph folder"):
        open_graph(path)


def test_another_format_is_refused(path):
    manifest = json.loads((path / "graph.json").read_text())
    (path / "graph.json").write_text(json.dumps(manifest | {"format": 7}))
    with pytest.raises(UserError, match="has format 7 but this version reads 1"):
        open_graph(path)


def test_what_is_no_graph_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"is not a graph folder: it has no graph.json"):
        open_graph(tmp_path)


def test_an_existing_folder_is_not_overwritten(path):
    with pytest.raises(UserError, match="already exists"):
        full_graph().save(path)
    verify_graph(path)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()], ids=repr)
def test_a_failure_while_saving_leaves_nothing_behind(error, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr("nagphormer.data.folder.write_ids", fail)
    with pytest.raises(type(error)):
        full_graph().save(tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


def test_too_little_free_disk_is_refused_before_any_file(tmp_path, monkeypatch):
    class Usage:
        free = 10

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    with pytest.raises(UserError, match="only 10 B is free"):
        full_graph().save(tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_is_refused(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=r"cannot write .*graph \(Read-only file system\)"):
        full_graph().save(tmp_path / "graph")


def test_the_fingerprint_that_0_1_0_wrote_is_that_of_arrays_and_not_taken_for_that_of_values(path):
    manifest = json.loads((path / "graph.json").read_text())
    for key in ("feature_kind", "feature_names"):
        manifest.pop(key, None)
    (path / "graph.json").write_text(json.dumps(manifest | {"fingerprint": "0" * 64}))
    assert open_graph(path).fingerprint == full_graph().fingerprint
