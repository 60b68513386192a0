"""What is said of a graph's numbers does not depend on what they lie in."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from nagphormer import from_scipy
from nagphormer.data import values
from nagphormer.data.values import FeatureKind, kind_of

RNG = np.random.default_rng(0)
DENSE = RNG.standard_normal((40, 6)).astype(np.float32)
SPARSE = np.where(RNG.random((40, 6)) < 0.2, DENSE, np.float32(0))
RING = sp.csr_array(np.roll(np.eye(40), 1, axis=1))


def containers(features):
    """The same numbers in everything they may lie in."""
    with_zeros = sp.csr_array(features)
    with_zeros.data[:1] = 0
    explicit = sp.coo_array(
        (np.concatenate([with_zeros.data, [0]]), (np.r_[with_zeros.tocoo().row, 0], np.r_[with_zeros.tocoo().col, 0])),
        shape=features.shape,
    )
    same = with_zeros.toarray()
    wide = sp.csr_array(same)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    return [
        same,
        np.asfortranarray(same),
        same.astype(np.float64),
        np.where(same == 0, -np.float32(0), same),
        sp.csr_array(same),
        sp.csc_array(same),
        explicit,
        wide,
    ]


@pytest.mark.parametrize("features", [DENSE, SPARSE])
@pytest.mark.parametrize("piece", [values.PIECE_VALUES, 50])
def test_the_same_numbers_have_one_fingerprint_and_kind(features, piece, monkeypatch):
    monkeypatch.setattr(values, "PIECE_VALUES", piece)
    graphs = [from_scipy(RING, held) for held in containers(features)]
    assert len({graph.fingerprint for graph in graphs}) == 1
    assert len({graph.feature_kind for graph in graphs}) == 1


def test_the_same_numbers_in_half_precision_have_the_same_fingerprint():
    halves = DENSE.astype(np.float16)
    assert from_scipy(RING, halves).fingerprint == from_scipy(RING, halves.astype(np.float32)).fingerprint


def test_zeros_that_move_are_another_graph():
    assert from_scipy(RING, SPARSE).fingerprint != from_scipy(RING, np.roll(SPARSE, 1, axis=1)).fingerprint
    assert from_scipy(RING, SPARSE).fingerprint != from_scipy(RING, np.roll(SPARSE, 1, axis=0)).fingerprint


def test_measurements_are_columns_mostly_filled_and_not_only_with_ones():
    features = np.array(
        [[1, 5, 1, 0], [1, 6, 2, 0], [1, 0, 0, 0], [0, 7, 0, 3]], float
    )  # 3 ones; 3 of 4; 2 of 4; 1 of 4
    assert kind_of(features) == kind_of(sp.csr_array(features)) == FeatureKind(9, 1, 4, 4)
    assert kind_of(features).density == 9 / 16


@pytest.mark.parametrize("features", [DENSE, SPARSE])
def test_what_0_1_0_took_of_any_container_is_known_for_the_same_graph(features):
    graph = from_scipy(RING, features)
    held = {"indptr": graph.indptr, "indices": graph.indices}
    csr = sp.csr_array(features)
    by_container = [
        values._digest(held | {"features": features}),
        values._digest(
            held | {f"features_{part}": getattr(csr, part) for part in ("indptr", "indices", "data")}, csr.shape
        ),
    ]
    assert graph.fingerprint in by_container
    for same in (graph, from_scipy(RING, csr)):
        assert all(same.is_known_as(found) for found in by_container)
        assert not same.is_known_as(from_scipy(RING, features + 1).fingerprint)


def test_a_copy_with_other_features_has_a_fingerprint_of_its_own():
    graph = from_scipy(RING, DENSE)
    assert graph.fingerprint != replace(graph, features=SPARSE).fingerprint
