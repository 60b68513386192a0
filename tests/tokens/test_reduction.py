"""Wide features reduced to few columns: NumPy's singular vectors, however the work is cut, and kept with a run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import random_adjacency, random_graph

from nagphormer import NodeClassifier, TokenStore, UserError, from_scipy, hop_tokens, load_graph, random_split
from nagphormer.inference.predict import open_source, probabilities
from nagphormer.tokens import inputs as inputs_module
from nagphormer.tokens import job as job_module
from nagphormer.tokens import reduction
from nagphormer.tokens.inputs import Columns
from nagphormer.tokens.reduction import product, singular_vectors
from nagphormer.training.run_folder import load_run

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
SCALINGS = ["none", "standardize", "row", "length"]
QUICK = {"hops": 1, "hidden_dim": 16, "num_heads": 2, "epochs": 3, "device": "cpu", "precision": "fp32"}


def features_of(num_nodes=80, num_features=30, seed=0, sparse=False):
    """Columns of falling size, so that singular values are apart; mostly zeros where they are to be sparse."""
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.standard_normal((num_features, num_features)))[0]
    size = 3 * 0.8 ** np.arange(num_features)
    if sparse:
        kept = rng.random((num_nodes, num_features)) < 0.2
        return (kept * rng.uniform(0.5, 1, kept.shape) * size).astype(np.float32)
    return ((rng.standard_normal((num_nodes, num_features)) * size) @ turned + turned[0]).astype(np.float32)


def graph_of(features, seed=0, **parts):
    num_nodes = features.shape[0]
    labels = np.arange(num_nodes) % 2
    return random_split(from_scipy(random_adjacency(num_nodes, seed), features, labels, **parts))


def scaled(features, scaling):
    """Features scaled in float64, as the settings say."""
    x = features.astype(np.float64)
    if scaling == "standardize":
        std = x.std(axis=0)
        return (x - x.mean(axis=0)) / np.where(std > 0, std, 1)
    if scaling == "row":
        return x / np.maximum(np.abs(x).sum(axis=1, keepdims=True), 1e-300)
    if scaling == "length":
        return x * np.sqrt(x.shape[1]) / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    return x


def vectors_of(graph, scaling, dim):
    return singular_vectors(Columns(graph, None, scaling), graph.num_features, dim)


def whole(columns):
    return columns.read(0, columns.num_nodes, 0, columns.width)


REDUCED = [graph_of(features_of()), graph_of(sp.csr_array(features_of(sparse=True)))]


# singular vectors


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_they_are_numpys_up_to_sign(scaling, sparse):
    features = features_of(80, 20, sparse=sparse)
    expected = np.linalg.svd(scaled(features, scaling), full_matrices=False)[2][:5].T
    graph = graph_of(sp.csr_array(features) if sparse else features)
    assert graph.sparse == sparse
    found = vectors_of(graph, scaling, 5)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.abs((found * expected).sum(axis=0)), 1, atol=1e-4)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_they_are_orthonormal_and_their_largest_entry_is_positive(scaling):
    found = vectors_of(graph_of(features_of()), scaling, 6)
    np.testing.assert_allclose(found.T @ found, np.eye(6), atol=1e-5)
    assert (found[np.abs(found).argmax(axis=0), np.arange(6)] > 0).all()


def test_of_wide_features_the_first_few_are_found():
    features = features_of(200, 150)
    expected = np.linalg.svd(features.astype(np.float64), full_matrices=False)[2][:8].T
    found = vectors_of(graph_of(features), "none", 8)
    assert np.linalg.svd(expected.T @ found)[1].min() > 0.999


@pytest.mark.parametrize("sparse", [False, True])
def test_however_many_rows_are_held_they_are_the_same(sparse, monkeypatch):
    features = features_of(100, 40, sparse=sparse)
    graph = graph_of(sp.csr_array(features) if sparse else features)
    expected = vectors_of(graph, "standardize", 5)
    for values in (1, 7 * 40, 10**9):
        monkeypatch.setattr(reduction, "PIECE_VALUES", values)
        np.testing.assert_allclose(vectors_of(graph, "standardize", 5), expected, atol=1e-5)


def test_no_more_values_are_held_than_allowed(monkeypatch):
    graph, held = graph_of(features_of(300, 60)), []
    columns = Columns(graph, None)
    rows = columns.rows
    monkeypatch.setattr(columns, "rows", lambda start, stop: held.append(stop - start) or rows(start, stop))
    monkeypatch.setattr(reduction, "PIECE_VALUES", 50 * 60)
    singular_vectors(columns, 60, 2)
    assert max(held) == 50


def test_the_container_of_features_plays_no_part():
    for sparse in (False, True):
        features = features_of(sparse=sparse)
        one, other = graph_of(features), graph_of(sp.csr_array(features))
        assert one.fingerprint == other.fingerprint
        for scaling in SCALINGS:
            assert np.array_equal(vectors_of(one, scaling, 4), vectors_of(other, scaling, 4))
            stores = (hop_tokens(each, 2, feature_scaling=scaling, reduce_dim=4) for each in (one, other))
            assert np.array_equal(*map(np.asarray, stores))


def test_a_product_of_sparse_rows_is_scipys():
    rows, weight = sp.random_array((9, 40), density=0.3, rng=np.random.default_rng(0)), np.ones((40, 5), np.float32)
    rows = sp.csr_array(rows, dtype=np.float32)
    np.testing.assert_allclose(product(rows, weight), rows @ weight, rtol=1e-5)
    assert product(rows, np.ones((40, 16), np.float32)).shape == (9, 16)
    assert product(rows[:0], weight).shape == (0, 5)


# columns


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_reduced_columns_are_the_scaled_features_times_the_vectors(scaling, sparse):
    features = features_of(sparse=sparse)
    columns = Columns(graph_of(sp.csr_array(features) if sparse else features), None, scaling, reduce_dim=5)
    assert (columns.num_features, columns.width) == (5, 5)
    np.testing.assert_allclose(whole(columns), scaled(features, scaling) @ columns.components, atol=1e-4)


def test_the_encoding_stands_after_reduced_features():
    encoding = np.random.default_rng(0).standard_normal((80, 3)).astype(np.float32)
    columns = Columns(graph_of(features_of()), encoding, reduce_dim=5)
    assert columns.width == 8
    np.testing.assert_array_equal(columns.read(3, 9, 5, 8), encoding[3:9])
    np.testing.assert_array_equal(columns.read(3, 9, 4, 6)[:, 1], encoding[3:9, 0])


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_part_equals_that_part_of_the_whole_to_the_bit(data):
    sparse = data.draw(st.booleans(), "sparse")
    columns = Columns(REDUCED[sparse], None, data.draw(st.sampled_from(SCALINGS)), reduce_dim=20)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 80), st.integers(0, 80))))
    first = data.draw(st.integers(0, 19))
    last = data.draw(st.integers(first + 1, 20))
    np.testing.assert_array_equal(columns.read(start, stop, first, last), whole(columns)[start:stop, first:last])


def test_dense_rows_are_read_a_few_at_a_time(monkeypatch):
    columns, held = Columns(graph_of(features_of(300, 60)), None, reduce_dim=5), []
    rows, expected = columns.rows, whole(columns)
    monkeypatch.setattr(columns, "rows", lambda start, stop: held.append(stop - start) or rows(start, stop))
    monkeypatch.setattr(inputs_module, "PIECE_VALUES", 50 * 60)
    np.testing.assert_array_equal(whole(columns), expected)
    assert held == [50] * 6


@pytest.mark.parametrize("reduce_dim", [0, 30, 31, 500])
def test_features_that_are_no_wider_stay_as_they_are(reduce_dim):
    graph = graph_of(features_of())
    columns = Columns(graph, None, "length", reduce_dim=reduce_dim)
    assert columns.components is None
    np.testing.assert_array_equal(whole(columns), whole(Columns(graph, None, "length")))


def test_a_graph_without_features_has_its_degrees():
    graph = from_scipy(random_adjacency(20, 0))
    np.testing.assert_array_equal(hop_tokens(graph, 1, reduce_dim=3), hop_tokens(graph, 1))


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_features_of_zeros_are_reduced_to_zeros(scaling, kind):
    graph = graph_of(kind(np.zeros((20, 8), np.float32)))
    assert not np.asarray(hop_tokens(graph, 1, feature_scaling=scaling, reduce_dim=3)).any()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_fewer_nodes_than_columns_are_kept_whole(kind):
    features = features_of(6, 40)
    found = np.asarray(hop_tokens(graph_of(kind(features)), 0, dtype="float32", reduce_dim=20))[:, 0]
    assert found.shape == (6, 20)
    np.testing.assert_allclose(found @ found.T, features @ features.T, rtol=1e-3, atol=1e-4)


def test_training_asks_for_no_more_columns_than_nodes():
    features = features_of(20, 40)
    clf = NodeClassifier(**QUICK, reduce_dim=30).fit(graph_of(features))
    assert clf.config_.reduce_dim == 20
    assert clf.fitted_.components.shape == (40, 20)
    assert NodeClassifier(**QUICK).fit(graph_of(features)).config_.reduce_dim == 20
    assert NodeClassifier(**QUICK, reduce_dim=0).fit(graph_of(features)).fitted_.components is None


def test_float16_and_memory_mapped_features_are_reduced_as_float32(tmp_path):
    features = features_of().astype(np.float16)
    expected = np.asarray(hop_tokens(graph_of(features.astype(np.float32)), 1, reduce_dim=4))
    graph = graph_of(features)
    np.testing.assert_array_equal(hop_tokens(graph, 1, reduce_dim=4), expected)
    graph.save(tmp_path / "graph")
    np.testing.assert_array_equal(hop_tokens(load_graph(tmp_path / "graph"), 1, reduce_dim=4), expected)


# stores


@pytest.fixture
def store(tmp_path):
    return hop_tokens(REDUCED[0], 2, reduce_dim=5, out=tmp_path / "tokens", device="cpu")


@pytest.mark.parametrize("sparse", [False, True])
def test_a_budget_changes_no_byte(sparse, tmp_path, monkeypatch):
    """However rows and columns are cut."""
    for number, values in enumerate((1, 10**9)):
        monkeypatch.setattr(inputs_module, "PIECE_VALUES", values)
        monkeypatch.setattr(job_module, "PIECE_BYTES", values)
        monkeypatch.setattr(job_module, "cache_bytes", lambda values=values: values)
        hop_tokens(REDUCED[sparse], 2, reduce_dim=20, feature_scaling="length", out=tmp_path / str(number))
    names = {path.name for path in (tmp_path / "0").iterdir()}
    assert names == {"manifest.json", "block-000.bin", "reduction.npy"}
    for name in names:
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_a_store_is_reused_and_one_made_otherwise_is_refused(store):
    again = hop_tokens(REDUCED[0], 2, reduce_dim=5, out=store.path)
    assert again.reused
    np.testing.assert_array_equal(again.components, Columns(REDUCED[0], None, reduce_dim=5).components)
    for other in (0, 6):
        with pytest.raises(UserError, match=f"holds tokens with reduce_dim=5, not {other}"):
            hop_tokens(REDUCED[0], 2, reduce_dim=other, out=store.path)


def test_components_are_verified_with_the_store(store, run):
    assert run("info", store.path, "--verify")[0] == 0
    content = bytearray((store.path / "reduction.npy").read_bytes())
    content[-3] ^= 1
    (store.path / "reduction.npy").write_bytes(content)
    code, _, err = run("info", store.path, "--verify")
    assert code == 2
    assert "reduction.npy is corrupt" in err


def test_a_store_without_its_components_is_refused(store):
    (store.path / "reduction.npy").unlink()
    with pytest.raises(UserError, match=r"reduction\.npy is missing"):
        _ = TokenStore.open(store.path).components
    with pytest.raises(UserError, match=r"reduction\.npy is corrupt"):
        TokenStore.open(store.path).verify()


def test_a_plain_store_says_nothing_of_reducing(tmp_path):
    made = hop_tokens(random_graph(), 1, out=tmp_path / "tokens", reduce_dim=0)
    assert not {"reduce_dim", "copy", "reduction_sha256"} & set(json.loads((made.path / "manifest.json").read_text()))


# runs


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "sparse"])
def trained(request):
    """A graph with named features, and a classifier that reads five columns of them."""
    features = features_of(80, 30, sparse=request.param)
    names = [f"x{column}" for column in range(30)]
    ids = [f"n{node}" for node in range(80)]
    held = sp.csr_array(features) if request.param else features
    graph = graph_of(held, feature_names=names, node_ids=ids)
    return graph, NodeClassifier(**QUICK | {"hops": 0}, reduce_dim=5, feature_scaling="standardize").fit(graph)


def test_a_part_of_the_graph_is_read_with_the_components_of_training(trained):
    graph, clf = trained
    part = graph.subgraph(np.arange(30))
    np.testing.assert_allclose(clf.predict_proba(part), clf.predict_proba(graph)[:30], atol=1e-3)
    np.testing.assert_array_equal(hop_tokens(part, 0, statistics=clf), hop_tokens(graph, 0, statistics=clf)[:30])


def test_components_are_saved_loaded_and_carried(trained, tmp_path):
    graph, clf = trained
    clf.save(tmp_path / "run")
    loaded = NodeClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.fitted_.components, clf.fitted_.components)
    part = graph.subgraph(np.arange(30))
    np.testing.assert_array_equal(loaded.predict_proba(part), clf.predict_proba(part))
    made = hop_tokens(part, 0, statistics=tmp_path / "run")
    np.testing.assert_array_equal(made, hop_tokens(part, 0, statistics=clf))
    for name in ("splits.safetensors", "metrics.jsonl"):
        (tmp_path / "run" / name).unlink()
    np.testing.assert_array_equal(NodeClassifier.load(tmp_path / "run").predict_proba(part), clf.predict_proba(part))
    (tmp_path / "run" / "reduction.safetensors").unlink()
    with pytest.raises(UserError, match=r"reduction\.safetensors is missing: .*carry it along"):
        NodeClassifier.load(tmp_path / "run")


def test_features_in_another_order_are_put_right(trained):
    graph, clf = trained
    order = np.random.default_rng(0).permutation(30)
    turned = replace(
        graph,
        features=graph.features[:, order],
        feature_names=tuple(np.array(graph.feature_names)[order]),
    )
    np.testing.assert_allclose(clf.predict_proba(turned), clf.predict_proba(graph), atol=1e-6)


def test_tokens_made_ahead_with_a_run_are_those_it_takes(trained, tmp_path):
    graph, clf = trained
    part = graph.subgraph(np.arange(30))
    ahead = hop_tokens(part, 0, statistics=clf, out=tmp_path / "ahead")
    assert ahead.tokens.reduce_dim == 5
    np.testing.assert_array_equal(clf.predict_proba(part, tokens=ahead), clf.predict_proba(part))
    own = hop_tokens(part, 0, feature_scaling="standardize", reduce_dim=5)
    with pytest.raises(UserError, match="reduced by others than training's vectors"):
        clf.predict_proba(part, tokens=own)
    with pytest.raises(UserError, match="reduce_dim=7 was asked for, but the run was trained with 5"):
        hop_tokens(part, 0, statistics=clf, reduce_dim=7)
    with pytest.raises(UserError, match="reduced by others than training's vectors"):  # of another run
        NodeClassifier(**QUICK | {"hops": 0}).fit(part, tokens=own).predict(part, tokens=ahead)


def test_tokens_that_runs_keep_of_another_graph_are_not_mixed_up(trained, tmp_path):
    graph, part = trained[0], random_split(trained[0].subgraph(np.arange(30)))
    clf, other = (NodeClassifier(**QUICK, reduce_dim=5, feature_scaling="length").fit(each) for each in (graph, part))
    for number, each in enumerate((clf, other, clf)):
        each.save(tmp_path / str(number))
        found = load_run(tmp_path / str(number))
        source = open_source(found, part, "cpu", folder=tmp_path / str(number))
        np.testing.assert_array_equal(probabilities(found, source, np.arange(30)), each.predict_proba(part))


def test_a_model_trained_on_a_store_takes_that_stores_components(trained, tmp_path):
    graph, clf = trained
    made = hop_tokens(graph, 0, feature_scaling="standardize", reduce_dim=5, out=tmp_path / "tokens")
    again = NodeClassifier(**QUICK | {"hops": 0}).fit(graph, tokens=TokenStore.open(made.path))
    assert again.config_.reduce_dim == 5
    np.testing.assert_array_equal(again.predict_proba(graph), clf.predict_proba(graph))


def test_a_store_of_narrow_features_that_might_have_been_reduced_serves_a_run_and_its_graphs(trained):
    graph, _ = trained
    narrow = hop_tokens(graph, 0, reduce_dim=64)
    np.testing.assert_array_equal(narrow, hop_tokens(graph, 0))
    clf = NodeClassifier(**QUICK | {"hops": 0}).fit(graph, tokens=narrow)
    part = graph.subgraph(np.arange(30))
    np.testing.assert_array_equal(
        clf.predict_proba(part, tokens=hop_tokens(part, 0, statistics=clf)), clf.predict_proba(part)
    )
