from dataclasses import replace

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import isolated, path_graph, random_graph, star_graph

from nagphormer.tokens import cpu
from nagphormer.tokens.cpu import NeighborSum
from nagphormer.tokens.engine import LANES


def random_slice(num_nodes, dtype, width=5 * LANES, seed=0):
    return np.random.default_rng(seed).standard_normal((num_nodes, width)).astype(dtype)


def summed(graph, y, loop=True):
    out = np.empty_like(y)
    factor = np.linspace(0.3, 1.7, graph.num_nodes, dtype=np.float32)
    NeighborSum(graph, factor, loop)(y, out)
    return out


@settings(deadline=None, max_examples=30)
@given(degrees=st.lists(st.integers(0, 30), min_size=1, max_size=60), num_parts=st.integers(1, 200))
def test_cut_rows_covers_every_row_once_and_in_order(degrees, num_parts):
    bounds = cpu.cut_rows(np.concatenate(([0], np.cumsum(degrees))), num_parts)
    assert len(bounds) == num_parts + 1
    assert (bounds[0], bounds[-1]) == (0, len(degrees))
    assert (np.diff(bounds) >= 0).all()


def test_cut_rows_gives_parts_of_equal_work():
    degrees = np.r_[np.full(500, 100), np.zeros(500, int)]
    indptr = np.concatenate(([0], np.cumsum(degrees)))
    edges = np.diff(indptr[cpu.cut_rows(indptr, 4)])
    assert edges[:3].max() - edges[:3].min() <= 200
    assert edges.sum() == 50_000


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loop", [False, True])
def test_every_sum_has_the_order_of_its_row_to_the_bit(weighted, loop):
    graph = random_graph(40, 1, seed=2, weighted=weighted)
    y = random_slice(40, np.float32)
    factor = np.linspace(0.3, 1.7, 40, dtype=np.float32)
    for node in range(40):
        total = y[node] * np.float32(loop)
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            weight = graph.weights[edge] if weighted else np.float32(1)
            total = total + y[graph.indices[edge]] * weight
        np.testing.assert_array_equal(summed(graph, y, loop)[node], total * factor[node])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_one_thread_equals_two(dtype):
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("needs a machine with two processor cores")
    graph, y = random_graph(300, 1, weighted=True), random_slice(300, dtype)
    before = numba.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            numba.set_num_threads(threads)
            results.append(summed(graph, y))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_columns_summed_alone_equal_columns_summed_together(dtype):
    graph, y = random_graph(100, 1), random_slice(100, dtype, width=10 * LANES)
    whole = summed(graph, y)
    for first in range(0, 10 * LANES, LANES):
        part = np.ascontiguousarray(y[:, first : first + LANES])
        np.testing.assert_array_equal(summed(graph, part), whole[:, first : first + LANES])


def test_int64_indices_give_the_same_sums():
    graph, y = random_graph(50, 1), random_slice(50, np.float16)
    wide = replace(graph, indices=graph.indices.astype(np.int64))
    np.testing.assert_array_equal(summed(wide, y), summed(graph, y))


def test_half_precision_is_summed_in_float32():
    graph = star_graph(3000)
    y = np.ones((3001, LANES), np.float16)  # float16 cannot count beyond 2048
    factor = np.full(3001, 0.1, np.float32)
    out = np.empty_like(y)
    NeighborSum(graph, factor, True)(y, out)
    np.testing.assert_array_equal(out[0], np.float16(np.float32(3001) * np.float32(0.1)))


def test_a_graph_without_edges_has_empty_sums():
    y = random_slice(5, np.float16)
    assert not summed(isolated(5), y, loop=False).any()


AWKWARD = [
    0.0,
    -0.0,
    1.0,
    1 + 2**-8,
    1 + 3 * 2**-8,
    1 + 2**-11,
    1 + 3 * 2**-11,
    -1.99999,
    6e-8,
    3e-8,
    1e-30,
    65504,
    3e38,
]


def packed(values, stored):
    """`values` through `pack` as hop 0, as the type that `stored` stands for."""
    x = np.zeros((len(values), 1), np.float32)
    x[:, 0] = values
    out = np.empty((len(values), 1, 1), stored)
    no_hops = np.empty((1, 0, len(values), LANES), np.uint16 if stored != np.float32 else np.float32)
    ones = np.ones(1, np.float32)
    cpu.pack(out, x, no_hops, 0, np.ones(len(values), np.float32), ones, ones)
    return out[:, 0, 0]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_bfloat16_rounds_as_torch_does(values):
    values = np.array([*values, *AWKWARD], np.float32)
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    np.testing.assert_array_equal(packed(values, np.int16), expected)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_float16_rounds_as_numpy_does(values):
    values = np.array([*values, *AWKWARD], np.float32)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    np.testing.assert_array_equal(packed(values, np.uint16).view(np.float16), expected)


def test_enter_scales_rows_and_columns_and_pads_with_zeros():
    y = np.full((2, 3, LANES), np.nan, np.float32)
    x = np.ones((2, LANES + 1), np.float32)
    scale = np.arange(1, LANES + 2, dtype=np.float32)
    cpu.enter(y, x, 1, np.array([9, 2, 3], np.float32), scale)
    assert np.isnan(y[:, 0]).all()  # rows before `start` are left alone
    np.testing.assert_array_equal(y[0, 1], 2 * scale[:LANES])
    assert y[1, 2].tolist() == [3 * (LANES + 1)] + [0] * (LANES - 1)


@pytest.mark.parametrize("hops", [1, 2, 3, 5])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_slice_keeps_every_hop_though_the_input_shares_a_place(hops, on_disk, tmp_path):
    graph = path_graph(6)
    factor, ones = (1 / (graph.degrees + 1)).astype(np.float32), np.ones(2 * LANES, np.float32)
    x = random_slice(6, np.float32, width=2 * LANES)
    shape, scratch = (2, hops, 6, LANES), tmp_path / "scratch" if on_disk else None
    hop_slice = cpu.HopSlice(NeighborSum(graph, factor, True), shape, np.dtype(np.float32), scratch)
    hop_slice.enter(x, 0, np.ones(6, np.float32), ones)
    steps = []
    hop_slice.run(steps.append)
    tokens = np.empty((6, hops + 1, 2 * LANES), np.float32)
    hop_slice.pack(tokens, x, 0, np.ones(6, np.float32), ones, ones)
    expected = x
    for hop in range(hops + 1):
        np.testing.assert_array_equal(tokens[:, hop], expected)
        out = np.empty_like(expected)
        NeighborSum(graph, factor, True)(expected, out)
        expected = out
    assert sum(steps) == 2 * hops
