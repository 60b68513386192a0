import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nagphormer import UserError, progress
from nagphormer.data.tensors import as_array, as_ends, as_features, as_mask, as_matrix, as_splits

DENSE = np.array([[0, 2, 0], [0, 0, 0], [3, 0, 4]], np.float32)


def test_tensors_with_gradient_and_in_bfloat16_become_arrays():
    tensor = torch.tensor([1.0, 2.5], requires_grad=True)
    assert as_array(tensor).tolist() == [1, 2.5]
    assert as_array(tensor.to(torch.bfloat16)).tolist() == [1, 2.5]


def test_a_dense_tensor_is_not_copied():
    tensor = torch.zeros(3)
    as_array(tensor)[1] = 5
    assert tensor[1] == 5


@pytest.mark.parametrize(
    "convert",
    [
        sp.csc_matrix,
        lambda dense: torch.tensor(dense).to_sparse_coo(),
        lambda dense: torch.tensor(dense).to_sparse_csr(),
    ],
    ids=["scipy", "torch-coo", "torch-csr"],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_matrices_stay_sparse(convert):
    result = as_matrix(convert(DENSE))
    assert sp.issparse(result)
    np.testing.assert_array_equal(result.toarray(), DENSE)


def test_torch_sparse_matrices_are_read_by_their_own_method():
    class SparseTensor:
        def to_scipy(self, layout):
            return {"csr": sp.csr_matrix(DENSE)}[layout]

    np.testing.assert_array_equal(as_matrix(SparseTensor()).toarray(), DENSE)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.filterwarnings("ignore:Sparse CS")
def test_every_sparse_layout_is_read(layout):
    held = torch.from_numpy(DENSE).to_sparse(layout=layout)
    np.testing.assert_array_equal(as_matrix(held).toarray(), DENSE)


@pytest.mark.filterwarnings("ignore:Sparse BSR")
def test_blocks_are_read():
    held = torch.eye(4).to_sparse_bsr((2, 2))
    np.testing.assert_array_equal(as_matrix(held).toarray(), np.eye(4))


def test_what_numpy_cannot_hold_is_refused_by_its_name():
    with pytest.raises(UserError, match="weights cannot be read as an array"):
        as_array([[1, 2], [3]], "weights")
    several = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2, 3), (2, 2, 3))
    with pytest.raises(UserError, match=r"adj_t, sparse and of shape .*: one number for each entry"):
        as_matrix(several, "adj_t")


@pytest.mark.parametrize("kind", ["pandas", "polars", "Table", "RecordBatch"])
def test_frames_name_their_columns(kind):
    held = {"a": [1.5, 2.0], "b": [0.0, 1.0]}
    if kind in ("pandas", "polars"):
        frame = pytest.importorskip(kind).DataFrame(held)
    else:
        frame = getattr(pytest.importorskip("pyarrow"), kind).from_pydict(held)
    features, names = as_features(frame)
    assert names == ["a", "b"]
    np.testing.assert_array_equal(features, [[1.5, 0], [2, 1]])


def test_numbers_and_truth_values_stand_side_by_side():
    pandas = pytest.importorskip("pandas")
    features, _ = as_features(pandas.DataFrame({"a": [1.5, 2.0], "b": [True, False]}))
    np.testing.assert_array_equal(features, [[1.5, 1], [2, 0]])
    with pytest.raises(UserError, match="column 'b' holds 'x'"):
        as_features(pandas.DataFrame({"a": [1.5, 2.0], "b": ["x", "y"]}))


def test_ends_of_edges_are_two_rows():
    with pytest.raises(UserError, match=r"shape \(3, 2\).*: turn it, edge_index.t\(\)"):
        as_ends(torch.zeros(3, 2, dtype=torch.long))
    for shape in ((1, 3), (3, 3), (3,)):
        with pytest.raises(UserError, match="a row of sources and one of targets"):
            as_ends(torch.zeros(shape, dtype=torch.long))


def test_a_mask_says_yes_or_no():
    assert as_mask(torch.tensor([1.0, 0.0]), "train_mask").tolist() == [True, False]
    for wrong, shown in ((torch.tensor([0, 2, 1]), "2"), (np.array([np.nan, 1.0]), "nan")):
        with pytest.raises(UserError, match=f"train_mask must hold True and False, not {shown}: .* train_idx"):
            as_mask(wrong, "train_mask")


def test_positions_beside_masks_are_not_read_and_said(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_plain_lines", True)
    splits = as_splits({"train_mask": np.array([True, False]), "val_idx": np.array([1])}.get)
    assert list(splits) == ["train"]
    assert "val_idx are not read, since other splits are masks" in capsys.readouterr().err


def test_two_names_for_the_positions_of_a_split_are_refused():
    with pytest.raises(UserError, match="both val_idx and valid_idx are there"):
        as_splits({"val_idx": np.array([1]), "valid_idx": np.array([1])}.get)


def test_one_of_several_splits_is_taken():
    masks = {
        "train_mask": torch.tensor([[1, 0], [0, 1]], dtype=torch.uint8),
        "test_mask": np.array([False, True]),
    }
    for split, train in ((0, [True, False]), (1, [False, True])):
        splits = as_splits(masks.get, split)
        assert {name: mask.tolist() for name, mask in splits.items()} == {"train": train, "test": [False, True]}
