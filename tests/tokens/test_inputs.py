import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import path_graph, random_graph, star_graph

from nagphormer import from_scipy
from nagphormer.tokens import inputs as inputs_module
from nagphormer.tokens.cpu import column_maxima
from nagphormer.tokens.inputs import Columns, column_exponents

PATH = path_graph(4).adjacency()
RNG = np.random.default_rng(0)
ROOTS = [2**0.5, -(2**0.5)]


def whole(columns):
    return columns.read(0, columns.num_nodes, 0, columns.width)


def with_features(features):
    return from_scipy(sp.csr_array((features.shape[0],) * 2), features)


def test_unscaled_columns_are_the_features():
    graph = random_graph()
    np.testing.assert_array_equal(whole(Columns(graph, None)), graph.features)


def test_a_graph_without_features_has_its_degrees_by_hand():
    columns = Columns(star_graph(3), None)
    assert columns.width == 1
    np.testing.assert_allclose(whole(columns)[:, 0], np.log([4, 2, 2, 2]), rtol=1e-6)


def test_the_encoding_stands_after_the_features():
    graph, encoding = random_graph(30, 3), RNG.standard_normal((30, 2)).astype(np.float32)
    columns = Columns(graph, encoding)
    assert (columns.num_features, columns.width) == (3, 5)
    np.testing.assert_array_equal(whole(columns), np.hstack([graph.features, encoding]))


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_any_part_equals_that_part_of_the_whole(data):
    graph, encoding = random_graph(30, 6), RNG.standard_normal((30, 3)).astype(np.float32)
    if data.draw(st.booleans(), "sparse"):
        graph = from_scipy(graph.adjacency(), sp.csr_array(graph.features))
    columns = Columns(graph, encoding, data.draw(st.sampled_from(["none", "standardize", "row", "length"])))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 30), st.integers(0, 30))))
    first = data.draw(st.integers(0, 8))
    last = data.draw(st.integers(first + 1, 9))
    part = columns.read(start, stop, first, last)
    assert part.dtype == np.float32
    np.testing.assert_array_equal(part, whole(columns)[start:stop, first:last])


@pytest.mark.parametrize("scaling", ["none", "standardize", "row", "length"])
def test_sparse_features_equal_dense_ones_to_the_bit(scaling):
    dense = (RNG.random((40, 9)) < 0.3) * RNG.standard_normal((40, 9)).astype(np.float32)
    by_dense, by_sparse = with_features(dense), with_features(sp.csr_array(dense))
    np.testing.assert_array_equal(whole(Columns(by_sparse, None, scaling)), whole(Columns(by_dense, None, scaling)))


def test_float16_features_are_read_as_float32():
    features = RNG.standard_normal((10, 3)).astype(np.float16)
    np.testing.assert_array_equal(whole(Columns(with_features(features), None)), features.astype(np.float32))


def test_standardized_columns_have_mean_0_and_deviation_1():
    features = RNG.normal(1000, [0.01, 1, 100], (500, 3)).astype(np.float32)
    columns = Columns(with_features(features), None, "standardize")
    exact = features.astype(np.float64)
    np.testing.assert_allclose(whole(columns), (exact - exact.mean(axis=0)) / exact.std(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(columns.statistics()["mean"], exact.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(columns.statistics()["std"], exact.std(axis=0), rtol=1e-9)


def test_a_constant_column_standardizes_to_zero():
    features = np.full((7, 2), [0.1, 0.0], np.float32)
    columns = Columns(with_features(features), None, "standardize")
    np.testing.assert_allclose(whole(columns), 0, atol=1e-12)
    assert columns.statistics()["std"] == [1, 1]


def test_rows_sum_to_one_in_magnitude_and_zero_rows_stay_zero():
    columns = Columns(with_features(np.array([[1, 3], [-1, 3], [0, 0]])), None, "row")
    assert whole(columns).tolist() == [[0.25, 0.75], [-0.25, 0.75], [0, 0]]


def test_rows_get_the_length_of_ones_and_zero_rows_stay_zero():
    features = np.array([[3, 0, 4, 0], [-7, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, -1]], np.float32)
    for held in (features, sp.csr_array(features)):
        columns = Columns(with_features(held), None, "length")
        assert whole(columns).tolist() == np.float32([[1.2, 0, 1.6, 0], [-2, 0, 0, 0], [0] * 4, [1, 1, 1, -1]]).tolist()
        assert columns.statistics() == {}


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e20, 1e30])
def test_rows_of_any_size_get_their_length(size):
    columns = Columns(with_features(np.float32([[3 * size, 4 * size], [size, 0]])), None, "length")
    np.testing.assert_allclose(whole(columns), np.array([[0.6, 0.8], [1, 0]]) * 2**0.5, rtol=1e-6)


def test_scaling_leaves_the_encoding_alone():
    graph, encoding = random_graph(30, 3), RNG.standard_normal((30, 2)).astype(np.float32)
    for scaling in ("standardize", "row", "length"):
        np.testing.assert_array_equal(whole(Columns(graph, encoding, scaling))[:, 3:], encoding)


def test_statistics_do_not_depend_on_pieces_much_and_pieces_cover_all_rows(monkeypatch):
    graph = random_graph(100, 4)
    expected = Columns(graph, None, "standardize").statistics()
    monkeypatch.setattr(inputs_module, "PIECE_VALUES", 64)
    columns = Columns(graph, None, "standardize")
    assert np.concatenate([np.arange(*piece) for piece in columns.pieces()]).tolist() == list(range(100))
    assert len(columns.pieces()) > 1
    np.testing.assert_allclose(columns.statistics()["mean"], expected["mean"], rtol=1e-12)


def test_without_standardizing_there_are_no_statistics():
    assert Columns(random_graph(), None).statistics() == {}


@pytest.mark.parametrize("scaling", ["none", "standardize", "row", "length"])
def test_affine_parts_give_what_is_read(scaling):
    dense = (RNG.random((40, 9)) < 0.3) * RNG.standard_normal((40, 9)).astype(np.float32)
    dense[3] = dense[:, 5] = 0
    columns = Columns(with_features(sp.csr_array(dense)), None, scaling)
    features, mean, deviation = columns.affine_parts()
    assert isinstance(features, sp.csr_array)
    assert features.dtype == np.float32
    assert features.nnz == (dense != 0).sum()
    assert mean.shape == deviation.shape == (9,)
    np.testing.assert_allclose((features.toarray() - mean) / deviation, whole(columns), rtol=1e-6, atol=1e-7)


def test_affine_parts_leave_the_encoding_out_and_the_graph_alone():
    features = sp.csr_array(np.array([[1, 0], [0, -4], [0, 0]], np.float32))
    graph = from_scipy(sp.csr_array((3, 3)), features)
    for scaling, values in (("none", [1, -4]), ("standardize", [1, -4]), ("row", [1, -1]), ("length", ROOTS)):
        parts, mean, _ = Columns(graph, np.ones((3, 2), np.float32), scaling).affine_parts()
        assert (parts.shape, len(mean)) == ((3, 2), 2)
        assert parts.data.tolist() == np.float32(values).tolist()
    assert graph.features.data.tolist() == [1, -4]


@settings(deadline=None, max_examples=50)
@given(exponent=st.floats(-40, 38), growth=st.floats(1, 1e4), degree=st.floats(1, 100))
def test_exponents_bring_every_column_below_float16s_limit(exponent, growth, degree):
    features = np.array([[1.0, 0.0], [-0.3, 0.0]]) * 10**exponent
    columns = Columns(with_features(features.astype(np.float32)), None)
    row_scale = np.array([degree, 1]) ** -0.5
    for_tokens, for_sums = column_exponents(*column_maxima(columns, row_scale.astype(np.float32)), growth)
    assert for_tokens[1] == for_sums[1] == 0  # a column of zeros
    largest_y = np.abs(whole(columns)[:, 0] * row_scale).max()
    assert largest_y * 2.0 ** -for_sums[0] < 2**15 * (1 + 1e-6)
    assert max(np.abs(whole(columns)[:, 0]).max(), largest_y * growth) * 2.0 ** -for_tokens[0] < 2**15 * (1 + 1e-6)
    for scale in np.ldexp(np.float32(1), np.array([for_tokens[0], -for_tokens[0], for_sums[0], -for_sums[0]])):
        assert np.isfinite(scale)
        assert scale > 0
    if -30 < exponent < 30:  # where float32 itself has room
        assert largest_y * 2.0 ** -for_sums[0] > 2**14 * (1 - 1e-6)


def test_statistics_that_are_given_are_not_measured_again():
    graph = from_scipy(sp.csr_array((3, 3)), np.array([[1.0], [2.0], [6.0]]))
    columns = Columns(graph, None, "standardize", {"mean": [1.0], "std": [2.0]})
    assert columns.read(0, 3, 0, 1)[:, 0].tolist() == [0, 0.5, 2.5]
