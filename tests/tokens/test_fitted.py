"""What is fitted in training is used wherever the run is: columns, mean and deviation, eigenvectors."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from nagphormer import NodeClassifier, UserError, from_scipy, hop_tokens, load_graph, progress, random_split
from nagphormer.data.checks import check_ids
from nagphormer.tokens import fitted
from nagphormer.tokens.fitted import ENOUGH, LEAST, SPARE, Fitted, agreement
from nagphormer.tokens.laplacian import solve

QUICK = {"hops": 2, "hidden_dim": 16, "num_heads": 2, "epochs": 30, "lr": 0.01, "device": "cpu", "precision": "fp32"}
QUICK |= {"network": "transformer", "reduce_dim": 0, "batch_size": 1000, "label_smoothing": 0.0}
SIZE = 120


def two_parts(rng, wide=False):
    """Two classes, each a part of its own, that differ in the level of their features alone."""
    labels = np.repeat([0, 1], SIZE // 2)
    adjacency = sp.block_diag([np.roll(np.eye(SIZE // 2), 1, axis=1)] * 2)
    features = rng.standard_normal((SIZE, 4)) + 5 * labels[:, None] + np.arange(4)
    names = [f"x{column}" for column in range(4)]
    graph = from_scipy(adjacency, features, labels, feature_names=names, class_names=["low", "high"])
    return random_split(graph)


def communities(seed=0, size=300):
    """Three groups with ids of their own; the features say nothing."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, size)
    chance = np.where(labels[:, None] == labels, 0.08, 0.004)
    edges = sp.coo_array(np.triu(rng.random((size, size)) < chance, 1))
    return random_split(
        from_scipy(edges, rng.standard_normal((size, 3)), labels, node_ids=[f"n{n}" for n in range(size)])
    )


def without_edges(graph, share, seed=0):
    """The same nodes, and a share of the edges gone."""
    upper = sp.triu(graph.adjacency()).tocoo()
    kept = np.random.default_rng(seed).random(upper.nnz) >= share
    edges = sp.coo_array((upper.data[kept], (upper.row[kept], upper.col[kept])), shape=upper.shape)
    return from_scipy(edges, graph.features, graph.labels, graph.splits, node_ids=graph.ids)


@pytest.fixture(scope="module")
def leveled():
    graph = two_parts(np.random.default_rng(0))
    return graph, NodeClassifier(feature_scaling="standardize", **QUICK).fit(graph)


@pytest.fixture(scope="module")
def encoded():
    graph = communities()
    return graph, NodeClassifier(encoding_dim=2, **QUICK).fit(graph)


@pytest.mark.parametrize("way", ["never", "always"])
def test_nodes_in_a_graph_of_their_own_are_predicted_as_in_the_whole(way):
    graph = two_parts(np.random.default_rng(0))
    if way == "always":
        graph = replace(graph, features=sp.csr_array(graph.features * (np.arange(4) == np.arange(SIZE)[:, None] % 4)))
    clf = NodeClassifier(feature_scaling="standardize", project_first=way, **QUICK).fit(graph)
    whole = clf.predict_proba(graph)
    for part in (np.arange(SIZE // 2), np.arange(SIZE // 2, SIZE)):
        np.testing.assert_allclose(clf.predict_proba(graph.subgraph(part)), whole[part], atol=2e-3)


def test_a_node_alone_is_not_all_zeros(leveled):
    graph, clf = leveled
    for node, label in ((0, 0), (SIZE - 1, 1)):
        alone = from_scipy(sp.csr_array((1, 1)), graph.features[[node]])
        assert clf.predict_proba(alone)[0, label] > 0.9


def test_a_loaded_run_keeps_what_was_fitted(leveled, tmp_path):
    graph, clf = leveled
    clf.save(tmp_path / "run")
    loaded, part = NodeClassifier.load(tmp_path / "run"), graph.subgraph(np.arange(SIZE // 2))
    np.testing.assert_array_equal(loaded.predict_proba(part), clf.predict_proba(part))
    assert (tmp_path / "run" / "manifest.json").read_text().count('"format": 2') == 1


def test_features_are_matched_by_their_names(leveled):
    graph, clf = leveled
    order = [2, 0, 3, 1]
    turned = from_scipy(
        graph.adjacency(),
        graph.features[:, order],
        graph.labels,
        graph.splits,
        feature_names=[graph.feature_names[column] for column in order],
        class_names=graph.class_names,
    )
    np.testing.assert_array_equal(clf.predict_proba(turned), clf.predict_proba(graph))
    assert clf.score(turned) == clf.score(graph)


def test_missing_and_new_features_are_named(leveled):
    graph, clf = leveled
    other = replace(graph, feature_names=("x0", "x1", "x2", "y"))
    with pytest.raises(UserError, match="the graph lacks 'x3' and has besides 'y': the model was trained on the feat"):
        clf.predict(other)


def test_a_graph_without_names_is_matched_by_position(leveled):
    graph, clf = leveled
    np.testing.assert_array_equal(clf.predict_proba(replace(graph, feature_names=None)), clf.predict_proba(graph))


def test_names_of_features_come_back_from_a_folder(leveled, tmp_path):
    leveled[0].save(tmp_path / "graph")
    assert load_graph(tmp_path / "graph").feature_names == ("x0", "x1", "x2", "x3")


def test_tokens_made_with_the_statistics_of_a_run_are_its_own(leveled, tmp_path):
    graph, clf = leveled
    part = graph.subgraph(np.arange(SIZE // 2))
    expected = clf.predict_proba(part)
    clf.save(tmp_path / "run")
    for statistics in (clf, tmp_path / "run"):
        store = hop_tokens(part, 2, feature_scaling="standardize", statistics=statistics, device="cpu")
        assert store.manifest.statistics_of == graph.fingerprint
        np.testing.assert_array_equal(clf.predict_proba(part, tokens=store), expected)
    own = hop_tokens(part, 2, feature_scaling="standardize", device="cpu")
    assert own.manifest.statistics_of is None
    with pytest.raises(UserError, match="standardized by another mean and deviation than training's"):
        clf.predict(part, tokens=own)


def test_a_store_with_the_statistics_of_another_graph_is_written_so_that_0_1_0_refuses_it(leveled, tmp_path):
    graph, clf = leveled
    part = graph.subgraph(np.arange(SIZE // 2))
    out = {"feature_scaling": "standardize", "out": tmp_path / "tokens", "device": "cpu"}
    hop_tokens(part, 2, statistics=clf, **out)
    assert '"format": 2' in (tmp_path / "tokens" / "manifest.json").read_text()
    assert hop_tokens(part, 2, statistics=clf, **out).reused
    with pytest.raises(UserError, match="of another graph, made for a run that was"):
        hop_tokens(part, 2, **out)


def test_what_was_not_fitted_cannot_be_asked_for(leveled, tmp_path):
    graph, clf = leveled
    with pytest.raises(UserError, match="encoding_dim=2 was asked for, but the run was trained with 0"):
        hop_tokens(graph, 2, encoding_dim=2, feature_scaling="standardize", statistics=clf)
    plain = NodeClassifier(feature_scaling="none", **QUICK | {"epochs": 1}).fit(graph)
    with pytest.raises(UserError, match="the run was trained with 'none': leave it out"):
        hop_tokens(graph, 2, feature_scaling="standardize", statistics=plain)
    with pytest.raises(UserError, match="takes a fitted NodeClassifier or the folder of a run, not 3"):
        hop_tokens(graph, 2, statistics=3)
    with pytest.raises(UserError, match="is not a run folder"):
        hop_tokens(graph, 2, statistics=tmp_path)
    old = NodeClassifier.load(Path(__file__).parent.parent / "frozen" / "run-default")
    with pytest.raises(UserError, match=r"this classifier is of 0\.1\.0, which kept no mean"):
        hop_tokens(graph, 2, statistics=old)


def test_eigenvectors_of_a_graph_with_fewer_edges_are_turned_to_those_of_training(encoded):
    graph, clf = encoded
    right = clf.predict(graph) == graph.labels
    assert right.mean() > 0.9
    for seed in range(6):
        fewer = without_edges(graph, 0.1, seed)
        turned = clf.fitted_.encoding_of(fewer, "cpu")
        assert agreement(clf.fitted_.encoding, turned) > 0.9
        assert (clf.predict(fewer) == graph.labels).mean() > right.mean() - 0.05


def test_eigenvectors_are_matched_by_the_ids_of_nodes(encoded):
    graph, clf = encoded
    order = np.random.default_rng(1).permutation(graph.num_nodes)
    turned = graph.subgraph(order)
    np.testing.assert_allclose(clf.predict_proba(turned), clf.predict_proba(graph)[order], atol=0.02)
    most = order[: len(order) * 9 // 10]
    assert agreement(clf.fitted_.encoding[most], clf.fitted_.encoding_of(graph.subgraph(most), "cpu")) > 0.9


def test_new_nodes_get_eigenvectors_that_mean_the_same(encoded):
    whole, _ = encoded
    kept = np.sort(np.random.default_rng(2).permutation(whole.num_nodes)[:270])
    clf = NodeClassifier(encoding_dim=2, **QUICK).fit(random_split(whole.subgraph(kept)))
    new = np.setdiff1d(np.arange(whole.num_nodes), kept)
    assert (clf.predict(whole, nodes=new) == whole.labels[new]).mean() > 0.85


def test_the_graph_of_training_has_the_eigenvectors_of_training(encoded, monkeypatch):
    from nagphormer.tokens import laplacian

    graph, clf = encoded
    monkeypatch.setattr(laplacian, "solve", lambda *_, **__: pytest.fail("searched again"))
    assert clf.fitted_.encoding_of(graph, "cpu") is clf.fitted_.encoding


def test_a_graph_that_has_little_to_do_with_that_of_training_is_refused(encoded):
    with pytest.raises(UserError, match=r"on 300 common nodes, below 0.5: .* or with encoding_dim=0"):
        encoded[1].predict(communities(seed=7))


@pytest.mark.parametrize("common", [0, 1, 119])
def test_too_few_common_nodes_say_nothing_of_eigenvectors(encoded, common):
    _, clf = encoded
    ids = np.array([f"new{n}" for n in range(300)], object)
    ids[:common] = [f"n{n}" for n in range(common)]
    other = replace(communities(seed=7), ids=check_ids(ids, 300))
    with pytest.raises(UserError, match=f"{common} nodes in common with that of training, and eigenvectors need 120"):
        clf.predict(other)
    store = hop_tokens(other, 2, encoding_dim=2, feature_scaling=clf.config_.feature_scaling)
    if common < 20:  # two vectors are compared as they are
        mine = replace(clf.fitted_, mean=None)
        with pytest.raises(UserError, match="eigenvectors need 20"):
            mine.refuse_other(other, replace(store.manifest, statistics_of=mine.graph), store.encoding, "these are")


def test_enough_common_nodes_are_too_many_to_agree_by_chance():
    rng = np.random.default_rng(0)
    for dim in (1, 3, 15):
        num_vectors = dim + SPARE
        agreed = []
        for _ in range(100):
            found, wanted = (rng.standard_normal((ENOUGH * num_vectors, width)) for width in (num_vectors, dim))
            left, _, right = np.linalg.svd(found.T @ wanted, full_matrices=False)
            agreed.append(agreement(wanted, found @ (left @ right)))
        assert np.quantile(agreed, 0.95) < LEAST


def test_tokens_of_another_graph_are_not_used_again_where_only_ids_differ(encoded):
    _, clf = encoded
    fewer = without_edges(encoded[0], 0.1, 3)
    turned = clf.predict_proba(fewer)
    swapped = replace(fewer, ids=fewer.ids[::-1])
    with pytest.raises(UserError, match="agree with those of training by"):
        clf.predict_proba(swapped)
    np.testing.assert_array_equal(clf.predict_proba(fewer), turned)


def test_tokens_whose_eigenvectors_turned_away_are_refused(encoded):
    graph, clf = encoded
    fewer = without_edges(graph, 0.1, 3)
    store = hop_tokens(fewer, 2, encoding_dim=2, feature_scaling=clf.config_.feature_scaling, statistics=clf)
    np.testing.assert_allclose(clf.predict_proba(fewer, tokens=store), clf.predict_proba(fewer), atol=1e-6)
    wrong = replace(clf.fitted_, encoding=-clf.fitted_.encoding)
    with pytest.raises(UserError, match="agree with those of training by -"):
        wrong.refuse_other(fewer, store.manifest, store.encoding, "these are")


def test_eigenvectors_of_an_older_store_are_read_from_its_tokens(tmp_path):
    graph = communities()
    store = hop_tokens(graph, 2, encoding_dim=2, out=tmp_path / "tokens", device="cpu")
    kept = np.array(store.encoding)
    (tmp_path / "tokens" / "encoding.npy").unlink()
    old = type(store).open(tmp_path / "tokens")
    np.testing.assert_allclose(old.encoding, kept, atol=2e-4)


def test_a_damaged_file_of_eigenvectors_is_found(tmp_path):
    store = hop_tokens(communities(), 2, encoding_dim=2, out=tmp_path / "tokens", device="cpu")
    store.verify()
    np.save(tmp_path / "tokens" / "encoding.npy", np.zeros((300, 2), np.float32))
    with pytest.raises(UserError, match=r"encoding\.npy is corrupt"):
        store.verify()


def bridged(bridges, size=100):
    """Four rings of nodes, each a class, joined in a chain by single edges, of which those named are there."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), size)
    near = np.triu(rng.random((4 * size, 4 * size)) < np.where(labels[:, None] == labels, 0.08, 0), 1)
    for part in range(4):
        ring = part * size + np.arange(size)
        near[ring, np.roll(ring, 1)] = True
    for part in bridges:
        near[part * size, part * size + size] = True
    features = rng.standard_normal((4 * size, 3))
    return random_split(from_scipy(sp.coo_array(near | near.T), features, labels))


def test_a_graph_that_falls_apart_keeps_what_told_its_parts_from_each_other():
    clf = NodeClassifier(encoding_dim=3, **QUICK).fit(bridged([0, 1, 2]))
    assert clf.score(bridged([0, 1, 2])) > 0.95
    for lost in ([1, 2], [0, 2], [0, 1], []):
        cut = bridged(lost)
        assert agreement(clf.fitted_.encoding, clf.fitted_.encoding_of(cut, "cpu")) > 0.9
        assert (clf.predict(cut) == cut.labels).mean() > 0.95


def test_what_is_lost_of_an_eigenvector_is_zero_and_not_noise(encoded):
    graph, clf = encoded
    noise = np.random.default_rng(0).standard_normal(graph.num_nodes)
    wanted = np.stack([clf.fitted_.encoding[:, 0], noise / np.linalg.norm(noise)], axis=1)
    turned = replace(clf.fitted_, encoding=wanted).encoding_of(without_edges(graph, 0.02), "cpu")
    lengths = np.linalg.norm(turned, axis=0)
    assert lengths[0] > 0.9
    assert lengths[1] < 0.3


def test_vectors_beyond_those_wanted_are_looked_at(encoded, monkeypatch):
    graph, clf = encoded
    swapped = replace(clf.fitted_, encoding=solve(graph, 6, device="cpu").vectors[:, 4:])
    fewer = without_edges(graph, 0.01)
    assert agreement(swapped.encoding, swapped.encoding_of(fewer, "cpu")) > 0.9
    monkeypatch.setattr(fitted, "SPARE", 0)
    with pytest.raises(UserError, match="agree with those of training by"):
        swapped.encoding_of(fewer, "cpu")


def test_how_far_eigenvectors_agree_is_said_also_of_tokens_that_are_there(encoded, tmp_path, monkeypatch, capsys):
    graph, clf = encoded
    monkeypatch.setattr(progress, "_plain_lines", True)
    fewer = without_edges(graph, 0.1, 3)
    for _ in range(2):
        store = hop_tokens(fewer, 2, statistics=clf, out=tmp_path / "tokens", device="cpu")
        assert "agree by 1.00 on 300 common nodes, of 300" in capsys.readouterr().err
    clf.predict(fewer, tokens=store)
    assert "agree by 1.00 on 300 common nodes, of 300" in capsys.readouterr().err
    NodeClassifier(encoding_dim=2, **QUICK | {"epochs": 1}).fit(graph)
    assert "2 Laplacian eigenvectors are joined to the features: they tie the model" in capsys.readouterr().err


def test_tokens_with_a_graphs_own_eigenvectors_are_not_those_of_a_run(encoded):
    graph, clf = encoded
    fewer = without_edges(graph, 0.02)
    own = hop_tokens(fewer, 2, encoding_dim=2, feature_scaling=clf.config_.feature_scaling, device="cpu")
    with pytest.raises(UserError, match=r"standardized by another|not turned to those of training"):
        clf.predict(fewer, tokens=own)
    plain = replace(clf.fitted_, mean=None)
    with pytest.raises(UserError, match="eigenvectors that were not turned to those of training: make them with"):
        plain.refuse_other(fewer, own.manifest, own.encoding, "these are")


def test_tokens_for_a_run_have_its_scaling_and_encoding(leveled, encoded):
    for (graph, clf), scaling, dim in ((leveled, "standardize", 0), (encoded, encoded[1].config_.feature_scaling, 2)):
        part = graph.subgraph(np.arange(graph.num_nodes - 1))
        for whole in (graph, part):
            store = hop_tokens(whole, 2, statistics=clf, device="cpu")
            assert (store.tokens.feature_scaling, store.tokens.encoding_dim) == (scaling, dim)
            np.testing.assert_array_equal(clf.predict_proba(whole, tokens=store), clf.predict_proba(whole))


def test_tokens_for_a_run_have_its_order_of_features(leveled):
    graph, clf = leveled
    order = [3, 1, 0, 2]
    names = tuple(graph.feature_names[column] for column in order)
    turned = replace(graph, features=graph.features[:, order], feature_names=names)
    np.testing.assert_array_equal(
        np.asarray(hop_tokens(turned, 2, statistics=clf, device="cpu")),
        np.asarray(hop_tokens(graph, 2, statistics=clf, device="cpu")),
    )


def test_tokens_made_for_a_run_are_not_trained_on(leveled):
    graph, clf = leveled
    part = graph.subgraph(np.arange(1, SIZE))
    store = hop_tokens(part, 2, statistics=clf, device="cpu")
    with pytest.raises(UserError, match="made for a run that was trained there"):
        NodeClassifier(**QUICK).fit(part, tokens=store)


def test_columns_of_sparse_features_in_another_order_are_the_same_graph():
    rng = np.random.default_rng(0)
    features = sp.random_array((80, 200), density=0.05, rng=rng, dtype=np.float32, format="csr")
    names = np.array([f"w{number}" for number in range(200)])
    labels, edges = np.arange(80) % 2, sp.eye_array(80, k=1)
    graph = random_split(from_scipy(edges, features, labels, feature_names=names))
    clf = NodeClassifier(**QUICK | {"epochs": 3}).fit(graph)
    order = rng.permutation(200)
    turned = from_scipy(edges, features[:, order], labels, graph.splits, feature_names=names[order])
    arranged = clf.fitted_.arranged(turned)
    assert arranged.fingerprint == graph.fingerprint
    np.testing.assert_array_equal(clf.predict_proba(turned), clf.predict_proba(graph))


def test_a_run_is_carried_by_weights_settings_and_manifest(leveled, encoded, tmp_path):
    for name, (graph, clf) in (("leveled", leveled), ("encoded", encoded)):
        clf.save(tmp_path / name)
        (tmp_path / f"{name}-carried").mkdir()
        for file in ("model.safetensors", "config.yaml", "manifest.json"):
            (tmp_path / f"{name}-carried" / file).write_bytes((tmp_path / name / file).read_bytes())
        carried = NodeClassifier.load(tmp_path / f"{name}-carried")
        np.testing.assert_allclose(carried.predict_proba(graph), clf.predict_proba(graph), atol=1e-5)
        assert carried.score(graph) == clf.score(graph)  # by the graph's own splits
    graph, clf = leveled
    carried = NodeClassifier.load(tmp_path / "leveled-carried")
    part = graph.subgraph(np.arange(SIZE // 2))
    np.testing.assert_array_equal(carried.predict_proba(part), clf.predict_proba(part))
    assert carried.feature_names_in_.tolist() == ["x0", "x1", "x2", "x3"]
    with pytest.raises(UserError, match=r"carried here without encoding\.safetensors"):
        NodeClassifier.load(tmp_path / "encoded-carried").predict(without_edges(encoded[0], 0.1))


def test_a_graph_without_features_is_not_one_with_a_feature():
    rng = np.random.default_rng(0)
    edges = sp.random_array((60, 60), density=0.1, rng=rng)
    bare = random_split(from_scipy(edges != 0, labels=np.arange(60) % 2))
    with_one = random_split(from_scipy(edges != 0, rng.random((60, 1)), np.arange(60) % 2))
    for trained, other, said in (
        (bare, with_one, "trained on a graph without features, but this graph has 1"),
        (with_one, bare, "trained on 1 features, but this graph has none"),
    ):
        clf = NodeClassifier(**QUICK | {"epochs": 1}).fit(trained)
        with pytest.raises(UserError, match=said):
            clf.predict(other)


@pytest.mark.parametrize("scaling", ["none", "standardize", "row"])
@pytest.mark.parametrize("way", ["never", "always"])
def test_half_precision_features_that_are_mostly_zeros_are_trained_on(scaling, way):
    rng = np.random.default_rng(0)
    features = (rng.random((90, 100)) < 0.05).astype(np.float16)
    graph = random_split(from_scipy(sp.eye_array(90, k=1), features, np.arange(90) % 3))
    clf = NodeClassifier(feature_scaling=scaling, project_first=way, **QUICK | {"epochs": 2}).fit(graph)
    assert clf.predict_proba(graph).shape == (90, 3)


def test_agreement_is_the_mean_of_the_cosines():
    assert agreement(np.eye(2), np.array([[3.0, 0.0], [0.0, -1.0]])) == 0.0
    assert agreement(np.eye(2), np.array([[1.0, 0.0], [0.0, 0.0]])) == 0.5


def test_columns_of_zeros_agree_with_anything():
    wanted = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert agreement(wanted, np.array([[2.0, 1.0], [0.0, 1.0]])) == 1.0
    assert agreement(wanted, np.array([[-1.0, 1.0], [0.0, 1.0]])) == -1.0
    assert agreement(wanted, np.zeros((2, 2))) == 0.0
    assert agreement(np.zeros((2, 2)), wanted) == 0.0  # nothing is known


def test_a_damaged_file_of_what_was_fitted_is_refused(encoded, tmp_path):
    encoded[1].save(tmp_path / "run")
    (tmp_path / "run" / "encoding.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"encoding\.safetensors or the manifest beside it is damaged"):
        Fitted.given(tmp_path / "run")


def test_predicting_where_training_was_needs_no_word(encoded):
    graph, clf = encoded
    with warnings.catch_warnings(action="error"):
        clf.predict(graph.with_splits())
