import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from nagphormer import UserError
from nagphormer.data.grand_plus import read_grand_plus

ADJACENCY = sp.csr_matrix(np.array([[0, 2, 0], [2, 1, 0.5], [0, 0, 0]]))
FEATURES = np.arange(6.0).reshape(3, 2)
ONE_HOT = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0]])


def write_pickles(folder, name="aminer"):
    folder.mkdir()
    for ending, content in ((".adj.sp", ADJACENCY), (".features", FEATURES), (".labels", ONE_HOT)):
        (folder / f"{name}{ending}.pkl").write_bytes(pickle.dumps(content))
    return folder


def write_arrays(folder, name="Amazon2M", labels=ONE_HOT):
    folder.mkdir(exist_ok=True)
    sp.save_npz(folder / f"{name}_adj.npz", ADJACENCY)
    np.save(folder / f"{name}_feat.npy", FEATURES)
    np.save(folder / f"{name}_labels.npy", labels)
    return folder


def check(graph, name):
    assert (graph.num_nodes, graph.num_edges, graph.num_classes, graph.name) == (3, 2, 3, name)
    assert graph.weights is None
    np.testing.assert_array_equal(graph.features, FEATURES)
    assert graph.labels.tolist() == [2, 0, -1]
    assert graph.splits == {}


def test_pickles_are_read_when_allowed(tmp_path):
    check(read_grand_plus(write_pickles(tmp_path / "a"), allow_pickle=True), "aminer")


def test_pickles_are_refused_in_words_when_not_allowed(tmp_path):
    folder = write_pickles(tmp_path / "a")
    (folder / "aminer.adj.sp.pkl").write_bytes(b"cos\nabort\n(tR.")  # would end the process
    with pytest.raises(UserError, match=r"pickle can run any code.*allow_pickle=True"):
        read_grand_plus(folder)


def test_arrays_need_no_permission(tmp_path):
    check(read_grand_plus(write_arrays(tmp_path / "a")), "amazon2m")


def test_several_labels_in_a_row_stay_multi_label(tmp_path):
    many = np.array([[1, 1], [0, 1], [0, 0]])
    assert read_grand_plus(write_arrays(tmp_path / "a", labels=many)).labels.tolist() == many.tolist()


def test_folders_that_hold_something_else_are_refused(tmp_path):
    with pytest.raises(UserError, match="not a folder"):
        read_grand_plus(tmp_path / "absent")
    with pytest.raises(UserError, match="no files of GRAND"):
        read_grand_plus(tmp_path)
    write_arrays(tmp_path / "a", "x")
    write_arrays(tmp_path / "a", "y")
    with pytest.raises(UserError, match=r"several graphs \(x, y\)"):
        read_grand_plus(tmp_path / "a")


def test_missing_and_damaged_files_are_refused(tmp_path):
    folder = write_pickles(tmp_path / "a")
    (folder / "aminer.adj.sp.pkl").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="damaged"):
        read_grand_plus(folder, allow_pickle=True)
    (folder / "aminer.adj.sp.pkl").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(UserError, match="no sparse matrix but list"):
        read_grand_plus(folder, allow_pickle=True)
    (folder / "aminer.labels.pkl").unlink()
    with pytest.raises(UserError, match=r"lacks aminer\.labels\.pkl"):
        read_grand_plus(folder, allow_pickle=True)
    arrays = write_arrays(tmp_path / "b", "reddit")
    (arrays / "reddit_feat.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match="damaged"):
        read_grand_plus(arrays)


def test_pickles_inside_arrays_are_never_read(tmp_path):
    folder = write_arrays(tmp_path / "a")
    np.save(folder / "Amazon2M_labels.npy", np.array([{}], object))
    with pytest.raises(UserError, match="Python objects"):
        read_grand_plus(folder, allow_pickle=True)


def test_an_adjacency_with_columns_out_of_range_is_refused(tmp_path):
    folder = write_arrays(tmp_path / "a", "reddit")
    np.savez(
        folder / "reddit_adj.npz",
        format=np.array(b"csr"),
        data=np.ones(1),
        indices=np.array([99]),
        indptr=np.array([0, 1, 1, 1]),
        shape=np.array([3, 3]),
    )
    with pytest.raises(UserError, match="damaged"):
        read_grand_plus(folder)
