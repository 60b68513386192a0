import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nagphormer import UserError
from nagphormer.data.tensors import as_array, as_labels, as_matrix, as_splits

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


def test_labels_in_one_column_lose_it_and_nan_means_unknown():
    assert as_labels(torch.tensor([[2.0], [float("nan")], [0.0]])).tolist() == [2, -1, 0]
    assert as_labels(torch.tensor([[1]])).tolist() == [1]  # one node: still one dimension


def test_multi_label_matrices_keep_their_columns():
    assert as_labels(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).tolist() == [[1, 0], [1, 1]]


def test_incomplete_multi_labels_are_refused():
    with pytest.raises(UserError, match="node 1 misses some of its 2 labels"):
        as_labels(np.array([[1, 0], [np.nan, 1]]))


def test_one_of_several_splits_is_taken():
    masks = {
        "train_mask": torch.tensor([[1, 0], [0, 1]], dtype=torch.uint8),
        "test_mask": np.array([False, True]),
    }
    for split, train in ((0, [True, False]), (1, [False, True])):
        splits = as_splits(masks.get, split)
        assert {name: mask.tolist() for name, mask in splits.items()} == {"train": train, "test": [False, True]}
