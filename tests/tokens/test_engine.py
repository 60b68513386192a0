import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import path_graph, random_graph

from nagphormer import from_scipy
from nagphormer.tokens.cpu import NeighborSum
from nagphormer.tokens.engine import LANES, Csr, round_up


def neighbor_sum(graph, factor, loop, y):
    out = np.full_like(y, np.nan)
    NeighborSum(graph, factor, loop)(y, out)
    return out


def column(values, dtype=np.float32):
    """`values` as the first of LANES columns."""
    y = np.zeros((len(values), LANES), dtype)
    y[:, 0] = values
    return y


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sums_over_neighbors_by_hand_on_a_path_of_four(dtype):
    y = column([1, 10, 100, 1000], dtype)
    assert neighbor_sum(path_graph(4), np.ones(4), False, y)[:, 0].tolist() == [10, 101, 1010, 100]
    assert neighbor_sum(path_graph(4), np.ones(4), True, y)[:, 0].tolist() == [11, 111, 1110, 1100]


def test_the_factor_multiplies_every_row_by_hand():
    factor = np.array([1, 2, 0.5, 0.25])
    assert neighbor_sum(path_graph(4), factor, True, column([1, 10, 100, 1000]))[:, 0].tolist() == [11, 222, 555, 275]


def test_weights_multiply_neighbors_but_not_the_loop_by_hand():
    graph = from_scipy(np.array([[0, 2, 0, 0], [2, 0, 0.5, 0], [0, 0.5, 0, 3], [0, 0, 3, 0]]))
    assert neighbor_sum(graph, np.ones(4), True, column([1, 10, 100, 1000]))[:, 0].tolist() == [21, 62, 3105, 1300]


def test_the_loop_is_the_only_neighbor_of_an_isolated_node():
    graph = from_scipy(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    assert neighbor_sum(graph, np.ones(3), True, column([1, 2, 7]))[:, 0].tolist() == [3, 3, 7]
    assert neighbor_sum(graph, np.ones(3), False, column([1, 2, 7]))[:, 0].tolist() == [2, 1, 0]


@settings(deadline=None, max_examples=30)
@given(
    vectors=st.integers(1, 11),
    weighted=st.booleans(),
    loop=st.booleans(),
    half=st.booleans(),
    seed=st.integers(0, 9),
)
def test_sums_equal_scipy_for_every_width(vectors, weighted, loop, half, seed):
    graph = random_graph(50, 1, seed, weighted)
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((50, vectors * LANES)).astype(np.float16 if half else np.float32)
    factor = rng.uniform(0.1, 2, 50).astype(np.float32)
    matrix = sp.diags_array(factor.astype(np.float64)) @ (graph.adjacency() + loop * sp.eye_array(50))
    expected, magnitude = matrix @ y.astype(np.float64), matrix @ np.abs(y.astype(np.float64))
    error = np.abs(neighbor_sum(graph, factor, loop, y) - expected)
    assert (error <= (1e-3 if half else 2e-6) * magnitude + 1e-7).all()


@pytest.mark.parametrize(("num_rows", "num_columns"), [(70, 9), (9, 70), (1, 40), (40, 1)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_products_with_a_matrix_that_is_not_square_equal_scipy(num_rows, num_columns, weighted, half):
    rng = np.random.default_rng(num_rows)
    dense = (rng.random((num_rows, num_columns)) < 0.3) * (rng.standard_normal((num_rows, num_columns)) + 3)
    matrix = sp.csr_array(dense if weighted else dense != 0, dtype=np.float32)
    parts = Csr(matrix.indptr.astype(np.int64), matrix.indices, matrix.data if weighted else None)
    y = rng.standard_normal((num_columns, 3 * LANES)).astype(np.float16 if half else np.float32)
    factor = rng.uniform(0.1, 2, num_rows).astype(np.float32)
    out = np.full((num_rows, 3 * LANES), np.nan, y.dtype)
    NeighborSum(parts, factor, loop=False)(y, out)
    matrix = sp.diags_array(factor.astype(np.float64)) @ matrix
    expected, magnitude = matrix @ y.astype(np.float64), abs(matrix) @ np.abs(y.astype(np.float64))
    assert (np.abs(out - expected) <= (1e-3 if half else 2e-6) * magnitude + 1e-7).all()


def test_a_row_beyond_the_columns_is_never_read():
    """Rows of `y` after the last column are not its own, also when the matrix has more rows than that."""
    matrix = Csr(np.array([0, 1, 1, 2, 2]), np.array([1, 0], np.int32), None)  # (4, 2)
    memory = np.full((4, LANES), np.nan, np.float32)
    memory[:2] = [[1], [10]]
    out = np.full((4, LANES), np.nan, np.float32)
    NeighborSum(matrix, np.ones(4), loop=False)(memory[:2], out)
    assert out[:, 0].tolist() == [10, 0, 1, 0]


def test_a_matrix_without_entries_gives_zeros():
    out = np.full((3, LANES), np.nan, np.float32)
    NeighborSum(Csr(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)), np.ones(3), loop=False)(
        np.ones((5, LANES), np.float32), out
    )
    assert (out == 0).all()


def test_torch_tensors_on_the_cpu_are_summed_in_place():
    y, out = torch.ones(4, LANES), torch.zeros(4, LANES)
    NeighborSum(path_graph(4), np.ones(4), False)(y, out)
    assert out[:, 0].tolist() == [1, 2, 2, 1]


@pytest.mark.slow
def test_torch_keeps_its_number_of_threads():
    code = """
import torch, numpy as np, scipy.sparse as sp
from nagphormer import from_scipy, hop_tokens
hop_tokens(from_scipy(sp.eye_array(4, k=1), np.eye(4)), hops=1)
print(torch.get_num_threads())
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_round_up_gives_the_next_multiple(number, multiple):
    rounded = round_up(number, multiple)
    assert rounded % multiple == 0
    assert number <= rounded < number + multiple
