import numpy as np
import pytest
import scipy.sparse as sp

from nagphormer import UserError
from nagphormer.data.npz import read_npz, stored_splits

PATH_OF_FOUR = sp.csr_array((np.ones(6, np.float32), ([0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2])), shape=(4, 4))


def csr(prefix, matrix):
    matrix = sp.csr_array(matrix)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    return {f"{prefix}_{part}": np.asarray(value) for part, value in parts.items()}


def write(path, **more):
    content = {**csr("adj", PATH_OF_FOUR), "labels": np.array([0, 1, -1, 1]), **more}
    np.savez_compressed(path, **content)
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "graph.npz"


def test_sparse_features_and_labels_are_read(file):
    counts = sp.csr_array(np.array([[0, 3], [0, 0], [1, 0], [0, 7]], np.float32))
    graph = read_npz(write(file, **csr("attr", counts)))
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (4, 3, 2, 2)
    np.testing.assert_array_equal(graph.features.toarray(), counts.toarray())
    assert graph.labels.tolist() == [0, 1, -1, 1]
    assert graph.weights is None
    assert graph.splits == {}


def test_dense_features_are_read(file):
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(read_npz(write(file, attr_matrix=matrix)).features, matrix)


def test_a_graph_may_lack_features_and_labels(file):
    np.savez(file, **csr("adj", PATH_OF_FOUR))
    graph = read_npz(file)
    assert (graph.features, graph.labels) == (None, None)


def test_directed_files_become_undirected(file):
    directed = sp.csr_array((np.ones(3), ([0, 2, 3], [1, 1, 3])), shape=(4, 4))  # with a self-loop
    assert read_npz(write(file, **csr("adj", directed))).num_edges == 2


def test_node_ids_and_class_names_are_kept(file):
    graph = read_npz(write(file, node_ids=np.array([9, 8, 7, 6]), class_names=np.array(["no", "yes"])))
    assert graph.node_ids.tolist() == [9, 8, 7, 6]
    assert graph.class_names == ("no", "yes")


def test_pickled_names_are_never_read(file):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was read",))

    bomb = np.array([Bomb(), 0], object)
    graph = read_npz(write(file, node_names=bomb, attr_names=bomb, class_names=bomb, node_ids=bomb))
    assert graph.class_names is None
    assert graph.node_ids.tolist() == [0, 1, 2, 3]


def test_pickled_labels_are_refused(file):
    with pytest.raises(UserError, match="pickle"):
        read_npz(write(file, labels=np.array(["a", None, "b", "c"], object)))


MASKS = {f"{name}_mask": np.eye(4, dtype=bool)[i] for i, name in enumerate(("train", "val", "test"))}
FIXED = {f"split60_{name}": np.array([3 - i]) for i, name in enumerate(("train", "valid", "test"))}
ROWS = {f"{key}s": np.stack([mask, np.roll(mask, 1)]) for key, mask in MASKS.items()}


def test_splits_are_listed_and_read_only_when_asked_for(file):
    write(file, **MASKS, **FIXED, **ROWS)
    assert stored_splits(file) == ["public", "fixed", 0, 1]
    assert read_npz(file).splits == {}


@pytest.mark.parametrize(
    ("split", "nodes"), [("public", [0, 1, 2]), ("fixed", [3, 2, 1]), (0, [0, 1, 2]), (1, [1, 2, 3])]
)
def test_every_kind_of_split_is_read(file, split, nodes):
    splits = read_npz(write(file, **MASKS, **FIXED, **ROWS), split).splits
    assert [splits[name].tolist() for name in ("train", "val", "test")] == [[node] for node in nodes]


@pytest.mark.parametrize("split", ["public", 2, -1, True, "nonsense"])
def test_a_missing_split_is_refused_with_what_there_is(file, split):
    write(file, **FIXED, **ROWS)
    with pytest.raises(UserError, match=r"has no split .*'fixed' and 0 to 1"):
        read_npz(file, split)


def test_files_that_are_no_graph_are_refused(file):
    with pytest.raises(UserError, match="not a file"):
        read_npz(file)
    file.write_text("not an archive")
    with pytest.raises(UserError, match=r"not an \.npz file"):
        read_npz(file)
    np.savez(file, something=np.ones(3))
    with pytest.raises(UserError, match="holds no graph"):
        read_npz(file)
    with pytest.raises(UserError, match="not a file"):
        read_npz(file.parent)


def test_a_file_cut_short_is_refused(file):
    content = write(file, attr_matrix=np.random.default_rng(0).random((4, 500))).read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="cannot be read"):
        read_npz(file)


def test_a_file_with_a_flipped_byte_is_refused(file):
    content = bytearray(write(file, attr_matrix=np.random.default_rng(0).random((4, 500))).read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
        read_npz(file)


def test_missing_parts_and_columns_out_of_range_are_refused(file):
    parts = csr("adj", PATH_OF_FOUR)
    np.savez(file, adj_data=parts["adj_data"])
    with pytest.raises(UserError, match="adj_indices"):
        read_npz(file)
    write(file, adj_indices=parts["adj_indices"] + 100)
    with pytest.raises(UserError, match="cannot be read"):
        read_npz(file)


def test_features_of_another_length_are_refused(file):
    with pytest.raises(UserError, match="features has 3 rows"):
        read_npz(write(file, attr_matrix=np.ones((3, 2))))


def test_splits_that_do_not_fit_together_are_refused_with_the_files_name(file):
    masks = np.zeros((3, 4), bool)
    write(file, train_masks=masks, val_masks=masks[:1], test_masks=masks)
    with pytest.raises(UserError, match=r"graph\.npz cannot be read"):
        read_npz(file, split=2)
    with pytest.raises(UserError, match=r"graph\.npz cannot be read"):
        read_npz(write(file, train_masks=np.array(True), val_masks=masks, test_masks=masks), split=0)
