import warnings

import numpy as np
import pytest
import reference
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import complete_graph, isolated, path_graph, random_adjacency, ring_graph, star_graph, union

from nagphormer import UserError, from_scipy, laplacian_encoding, synthetic_graph
from nagphormer.tokens.laplacian import solve


def found(graph, dim, **settings):
    return solve(graph, dim, device="cpu", **settings)


def last_clear_cut(values, dim, residual):
    """How many of the first `dim` vectors span a space that the next eigenvalue leaves alone."""
    gaps = np.diff(np.append(values, np.inf))[:dim]
    clear = np.flatnonzero(gaps >= 100 * max(residual, 1e-7))
    return int(clear[-1]) + 1 if len(clear) else 0


def smallest_cosine(first, second):
    """Cosine of the largest angle between two spaces."""
    return np.linalg.svd(np.linalg.qr(first)[0].T @ np.linalg.qr(second)[0], compute_uv=False).min(initial=1.0)


def check_against_eigh(graph, dim, tol=1e-3):
    """The promises of DESIGN.md, for a graph small enough for `numpy.linalg.eigh`."""
    pairs, (values, vectors) = found(graph, dim), reference.eigenpairs(graph)
    exact, u = values[:dim], pairs.vectors[:, : len(values)].astype(np.float64)
    assert pairs.vectors.shape == (graph.num_nodes, dim)
    assert pairs.vectors.dtype == np.float32
    assert pairs.num_trivial == (reference.degrees(graph) > 0).sum() - len(values)
    np.testing.assert_allclose(pairs.eigenvalues[: len(exact)], exact, atol=1e-5, rtol=1e-4)
    residual = np.linalg.norm(reference.laplacian(graph) @ u - u * pairs.eigenvalues[: u.shape[1]], axis=0)
    assert (residual <= tol * np.maximum(exact, 1e-2)).all()
    np.testing.assert_allclose(pairs.residuals[: len(residual)], residual, atol=2e-6, rtol=0.05)
    np.testing.assert_allclose(np.linalg.norm(u, axis=0), 1, rtol=1e-5)
    assert not pairs.vectors[reference.degrees(graph) == 0].any()
    largest = np.abs(pairs.vectors).argmax(axis=0)
    assert (pairs.vectors[largest, np.arange(dim)][: len(exact)] > 0).all()
    cut = last_clear_cut(values, len(exact), residual.max(initial=0))
    assert smallest_cosine(vectors[:, :cut], u[:, :cut]) >= 0.99
    return pairs


def test_a_path_of_four_by_hand():
    pairs = found(path_graph(4), 3)
    np.testing.assert_allclose(pairs.eigenvalues, [0.5, 1.5, 2], atol=1e-6)  # 1 − cos(πk/3)
    root = np.sqrt([1, 2, 2, 1])
    np.testing.assert_allclose(np.abs(pairs.vectors[:, 0]), root * [1, 0.5, 0.5, 1] / np.sqrt(3), atol=1e-5)
    np.testing.assert_allclose(np.abs(pairs.vectors[:, 2]), root / np.sqrt(6), atol=1e-5)
    assert pairs.num_trivial == 1


@pytest.mark.parametrize("num_nodes", [10, 61, 200])
def test_a_path_has_its_analytic_eigenvalues(num_nodes):
    expected = 1 - np.cos(np.pi * np.arange(1, 9) / (num_nodes - 1))
    np.testing.assert_allclose(check_against_eigh(path_graph(num_nodes), 8).eigenvalues, expected, atol=1e-6)


@pytest.mark.parametrize("num_nodes", [9, 60, 200])
def test_a_ring_has_its_analytic_eigenvalues_in_pairs(num_nodes):
    expected = 1 - np.cos(2 * np.pi * np.repeat([1, 2, 3, 4], 2) / num_nodes)
    np.testing.assert_allclose(check_against_eigh(ring_graph(num_nodes), 8).eigenvalues, expected, atol=1e-6)


def test_a_long_ring_is_solved_to_the_stated_residual():
    pairs = found(ring_graph(5000), 4)
    expected = 1 - np.cos(2 * np.pi * np.array([1, 1, 2, 2]) / 5000)
    assert (pairs.residuals <= 1e-5).all()
    np.testing.assert_allclose(pairs.eigenvalues, expected, atol=1e-5)


def test_a_complete_graph_has_one_eigenvalue_of_full_multiplicity():
    pairs = check_against_eigh(complete_graph(30), 29)
    np.testing.assert_allclose(pairs.eigenvalues, 30 / 29, atol=1e-6)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(29), atol=1e-4)


def test_a_star_has_eigenvalue_1_for_all_vectors_but_the_last():
    pairs = check_against_eigh(star_graph(40), 40)
    np.testing.assert_allclose(pairs.eigenvalues, [1] * 39 + [2], atol=1e-6)


def test_a_complete_bipartite_graph_has_eigenvalues_1_and_2():
    adjacency = np.zeros((30, 30))
    adjacency[:12, 12:] = 1
    np.testing.assert_allclose(check_against_eigh(from_scipy(adjacency), 29).eigenvalues, [1] * 28 + [2], atol=1e-6)


def test_a_hypercube_has_its_multiplicities():
    side, cube = np.array([[0, 1], [1, 0]]), np.zeros((1, 1))
    for _ in range(6):
        cube = np.kron(cube, np.eye(2)) + np.kron(np.eye(len(cube)), side)
    pairs = check_against_eigh(from_scipy(cube), 22)
    np.testing.assert_allclose(pairs.eigenvalues, [1 / 3] * 6 + [2 / 3] * 15 + [1], atol=1e-5)


def test_equal_components_give_every_eigenvalue_twice():
    pairs = check_against_eigh(union(path_graph(30), path_graph(30)), 8)
    assert pairs.num_trivial == 2
    expected = 1 - np.cos(np.pi * np.arange(1, 5) / 29)
    np.testing.assert_allclose(pairs.eigenvalues, np.repeat(expected, 2), atol=1e-6)


def test_components_and_isolated_nodes_are_told_apart():
    graph = union(isolated(2), path_graph(12), isolated(1), ring_graph(9), complete_graph(4), isolated(3))
    assert check_against_eigh(graph, 6).num_trivial == 3


@pytest.mark.parametrize(("num_nodes", "num_components", "dim"), [(3, 20, 26), (4, 20, 30), (4, 20, 42), (3, 40, 58)])
def test_many_small_components_are_solved_up_to_the_far_end_of_the_spectrum(num_nodes, num_components, dim):
    check_against_eigh(union(*[path_graph(num_nodes)] * num_components), dim)


def test_hundreds_of_components_leave_no_trivial_vector():
    sizes = np.random.default_rng(0).integers(2, 6, 230)
    graph = union(*map(path_graph, sizes), synthetic_graph(300, 900, 0, 2))
    pairs = check_against_eigh(graph, 16)
    assert pairs.num_trivial >= 231
    assert (pairs.eigenvalues > 1e-3).all()


def test_weights_count():
    graph = from_scipy(random_adjacency(80, seed=4, mean_degree=6, weighted=True))
    weighted = check_against_eigh(graph, 6)
    unweighted = check_against_eigh(from_scipy(graph.adjacency().astype(bool)), 6)
    assert np.abs(weighted.eigenvalues - unweighted.eigenvalues).max() > 1e-2


def test_a_common_factor_of_all_weights_changes_nothing():
    graph = from_scipy(random_adjacency(80, seed=4, mean_degree=6, weighted=True))
    for factor in (2.0**-30, 2.0**30):
        scaled = found(from_scipy(graph.adjacency() * np.float32(factor)), 5)
        np.testing.assert_allclose(scaled.eigenvalues, found(graph, 5).eigenvalues, atol=1e-5)


def test_a_heavy_component_does_not_hide_a_light_one():
    adjacency = sp.block_diag([path_graph(10).adjacency() * 1e10, path_graph(10).adjacency() * 1e-7])
    pairs = check_against_eigh(from_scipy(adjacency), 6)
    assert pairs.num_trivial == 2


@settings(deadline=None, max_examples=25)
@given(
    num_nodes=st.integers(2, 90),
    seed=st.integers(0, 10**6),
    mean_degree=st.floats(0.5, 6),
    weighted=st.booleans(),
    dim=st.integers(1, 12),
)
def test_random_graphs_agree_with_numpy(num_nodes, seed, mean_degree, weighted, dim):
    graph = from_scipy(random_adjacency(num_nodes, seed, mean_degree, weighted))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the graph has only")
        check_against_eigh(graph, dim)


def test_a_large_random_graph_agrees_with_numpy():
    check_against_eigh(synthetic_graph(900, 4000, 0, 3), 15)


def test_permuting_nodes_permutes_the_space():
    graph = synthetic_graph(300, 900, 0, 3)
    order = np.random.default_rng(0).permutation(300)
    permuted = from_scipy(graph.adjacency()[order][:, order])
    first, second = found(graph, 6), found(permuted, 6)
    cut = last_clear_cut(reference.eigenpairs(graph)[0], 6, first.residuals.max())
    assert cut > 0
    assert smallest_cosine(first.vectors[order, :cut], second.vectors[:, :cut]) >= 0.99


def test_seeds_agree():
    graph = union(synthetic_graph(400, 1200, 0, 3), path_graph(50), ring_graph(40), isolated(5))
    values = reference.eigenpairs(graph)[0]
    runs = [found(graph, 10, seed=seed) for seed in range(4)]
    cut = last_clear_cut(values, 10, max(run.residuals.max() for run in runs))
    assert cut >= 4
    for run in runs[1:]:
        np.testing.assert_allclose(run.eigenvalues, runs[0].eigenvalues, atol=1e-5)
        assert smallest_cosine(run.vectors[:, :cut], runs[0].vectors[:, :cut]) >= 0.99


def test_the_same_seed_gives_the_same_bits():
    graph = synthetic_graph(400, 1200, 0, 3)
    np.testing.assert_array_equal(found(graph, 5, seed=3).vectors, found(graph, 5, seed=3).vectors)


def test_a_smaller_tolerance_gives_smaller_residuals():
    graph = synthetic_graph(400, 1200, 0, 3)
    residuals = found(graph, 5, tol=1e-5).residuals
    assert (residuals <= 1e-5 * np.maximum(found(graph, 5).eigenvalues, 1e-2) * 1.01).all()


@pytest.mark.parametrize(("graph", "existing"), [(path_graph(4), 3), (union(path_graph(2), isolated(3)), 1)])
def test_vectors_that_do_not_exist_are_zero_columns_with_a_warning(graph, existing):
    with pytest.warns(UserWarning, match=rf"only {existing} non-trivial .* other {6 - existing} columns .* are zero"):
        encoding = laplacian_encoding(graph, 6, device="cpu")
    assert encoding.shape == (graph.num_nodes, 6)
    assert not encoding[:, existing:].any()
    np.testing.assert_allclose(np.linalg.norm(encoding[:, :existing], axis=0), 1, rtol=1e-6)


def test_a_graph_without_edges_has_a_zero_encoding():
    with pytest.warns(UserWarning, match="only 0 non-trivial"):
        pairs = found(isolated(5), 2)
    assert not pairs.vectors.any()
    assert np.isnan(pairs.eigenvalues).all()
    assert pairs.num_trivial == pairs.num_products == 0


def test_a_time_limit_ends_in_a_warning_with_the_residual():
    with pytest.warns(UserWarning, match=r"time limit 0 s.*vector \d has residual \d\.\de-\d\d instead of \d"):
        pairs = found(ring_graph(3000), 4, time_limit=0)
    np.testing.assert_allclose(np.linalg.norm(pairs.vectors, axis=0), 1, rtol=1e-5)
    assert (pairs.residuals > 1e-5).any()


def test_a_tolerance_beyond_float32_ends_in_a_warning_and_not_in_nan():
    with pytest.warns(UserWarning, match="the search for eigenvectors ended"):
        pairs = found(star_graph(39), 39, tol=1e-12, time_limit=0.2)
    np.testing.assert_allclose(pairs.eigenvalues, [1] * 38 + [2], atol=1e-4)


def test_a_converged_search_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found(ring_graph(100), 4)


@pytest.mark.parametrize("dim", [0, -1])
def test_an_encoding_without_dimensions_is_refused(dim):
    with pytest.raises(UserError, match=f"at least 1 dimension, not {dim}"):
        laplacian_encoding(path_graph(4), dim)


def test_threads_of_torch_are_restored():
    import torch

    before = torch.get_num_threads()
    found(ring_graph(50), 2)
    assert torch.get_num_threads() == before


def test_a_tolerance_beyond_float32_ends_in_a_warning_soon():
    with pytest.warns(UserWarning, match="no more progress"):
        solve(ring_graph(40), 4, tol=1e-9, device="cpu", time_limit=60)


def test_a_tolerance_must_be_positive():
    with pytest.raises(UserError, match="tol must be positive, not 0"):
        laplacian_encoding(ring_graph(10), 2, tol=0)


def test_of_entries_that_are_equal_by_symmetry_the_first_is_positive():
    for seed in range(5):
        first = laplacian_encoding(path_graph(20), 1, seed=seed, device="cpu")[:, 0]
        largest = np.abs(first).argmax()  # NumPy gives the lowest index on ties
        assert largest < 10
        assert first[largest] == -first[19 - largest] > 0


def test_torch_gets_its_threads_back():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        laplacian_encoding(ring_graph(40), 2, device="cpu")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_nothing_is_searched_once_time_is_up():
    with pytest.warns(UserWarning, match="time limit 0 s"):
        assert solve(ring_graph(3000), 4, device="cpu", time_limit=0).num_products == 1
