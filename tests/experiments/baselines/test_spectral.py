import numpy as np
import scipy.sparse as sp
import torch

from experiments.baselines.method import Task
from experiments.baselines.spectral import eigenpairs, flip_signs
from nagphormer import from_scipy, random_split
from tests.experiments.small import dense_adjacency, small_task


def test_they_are_pairs_of_the_normalized_laplacian():
    task = small_task()
    adjacency = dense_adjacency(task)
    scale = adjacency.sum(axis=1) ** -0.5
    laplacian = np.eye(task.num_nodes) - scale[:, None] * adjacency * scale
    vectors, values = (part.numpy().astype(np.float64) for part in eigenpairs(task, 4))
    np.testing.assert_allclose(values, np.linalg.eigvalsh(laplacian)[1:5], atol=1e-3)
    np.testing.assert_allclose(laplacian @ vectors, vectors * values, atol=1e-2)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=0), 1, atol=1e-5)


def test_pairs_that_do_not_exist_are_left_out(recwarn):
    path = sp.csr_array(np.eye(6, k=1) + np.eye(6, k=-1))
    task = Task(random_split(from_scipy(path, np.ones((6, 2), np.float32), np.arange(6) % 2)))
    vectors, values = eigenpairs(task, 9)
    assert vectors.shape == (6, 5)
    assert values.shape == (5,)
    assert torch.isfinite(values).all()


def test_a_flip_turns_whole_columns():
    torch.manual_seed(0)
    vectors = torch.rand(5, 40) + 0.1
    signs = flip_signs(vectors) / vectors
    assert torch.equal(signs, signs[:1].expand(5, 40))
    assert set(signs[0].tolist()) == {1.0, -1.0}
