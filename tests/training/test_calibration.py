import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from small import class_graph

from nagphormer import NodeClassifier, UserError
from nagphormer.metrics import ece, log_loss
from nagphormer.training.calibration import doubt, probability_of, temperature

SETTINGS = {"hops": 2, "hidden_dim": 16, "num_heads": 2, "epochs": 6, "lr": 0.01, "device": "cpu", "precision": "fp32"}


def drawn(several=False, size=4000, seed=0):
    """Scores, and targets that are drawn with the probabilities they mean."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(2 * rng.standard_normal((size, 3)))
    if several:
        return scores, torch.from_numpy((rng.random((size, 3)) < scores.sigmoid().numpy()).astype(np.int64))
    chosen = scores.softmax(dim=1).cumsum(dim=1).numpy() > rng.random((size, 1))
    return scores, torch.from_numpy(chosen.argmax(axis=1))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_scores_that_are_too_large_or_too_small_are_found_out(factor, several):
    scores, target = drawn(several)
    assert temperature(factor * scores, target) == pytest.approx(factor, rel=0.08)


@pytest.mark.parametrize(("size", "least"), [(1, 0.3), (10, 0.1), (100, 0.02)])
def test_few_nodes_that_are_all_right_do_not_make_it_sure(size, least):
    scores = torch.eye(2).repeat(size, 1)[:size]
    found = temperature(scores, scores.argmax(dim=1))
    assert least < found < 1


def test_a_model_of_one_class_only_in_validation_is_calibrated_too():
    assert 0 < temperature(torch.randn(20, 3), torch.zeros(20, dtype=torch.long)) < 200


def test_probabilities_are_surer_or_less_sure_and_decisions_stay():
    graph = class_graph(noise=2.0)
    clf = NodeClassifier(**SETTINGS).fit(graph)
    run, nodes = clf._run, graph.splits["val"]
    assert clf.temperature_ != 1.0
    calibrated, decided = clf.predict_proba(graph), clf.predict(graph)
    clf._run = replace(run, temperature=1.0)
    plain = clf.predict_proba(graph)
    assert decided.tolist() == clf.predict(graph).tolist() == clf.classes_[calibrated.argmax(axis=1)].tolist()
    logits = np.log(plain)
    expected = np.exp(logits / run.temperature)
    np.testing.assert_allclose(calibrated, expected / expected.sum(axis=1, keepdims=True), atol=1e-5)
    truth = graph.labels[nodes]
    assert log_loss(truth, calibrated[nodes]) < log_loss(truth, plain[nodes])


def test_the_temperature_is_kept_and_a_damaged_one_refused(tmp_path):
    graph = class_graph()
    clf = NodeClassifier(**SETTINGS).fit(graph)
    clf.save(tmp_path / "run")
    np.testing.assert_array_equal(NodeClassifier.load(tmp_path / "run").predict_proba(graph), clf.predict_proba(graph))
    path = tmp_path / "run" / "manifest.json"
    whole = json.loads(path.read_text())
    assert whole["temperature"] == clf.temperature_
    for damaged in (0.0, -1.0, float("inf"), "warm", None):
        path.write_text(json.dumps(whole | {"temperature": damaged}))
        with pytest.raises(UserError, match="its temperature is"):
            NodeClassifier.load(tmp_path / "run")


def test_what_diverged_has_none():
    graph = class_graph()
    clf = NodeClassifier(**SETTINGS | {"lr": 1e30})
    with pytest.raises(UserError, match="training stopped"):
        clf.fit(graph)
    assert clf.temperature_ == 1.0


def test_other_settings_find_another_temperature_and_the_same_the_same():
    graph = class_graph(noise=2.0)
    found = [NodeClassifier(**SETTINGS | {"epochs": epochs}).fit(graph).temperature_ for epochs in (2, 2, 6)]
    assert found[0] == found[1] != found[2]


def noisy(share, size=3000, num_classes=20, seed=0):
    """Scores that are right but for a share of the labels, which are any; and those labels."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(num_classes, size=size)
    scores = 4 * np.eye(num_classes)[truth] + rng.standard_normal((size, num_classes))
    labels = np.where(rng.random(size) < share, rng.integers(num_classes, size=size), truth)
    return torch.from_numpy(scores), torch.from_numpy(labels)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_labels_that_may_be_any_are_doubted(share):
    scores, labels = noisy(share)
    alone = temperature(scores, labels)
    heat, found = doubt(scores, labels, alone)
    assert found == pytest.approx(share, abs=0.03)
    assert heat < alone  # of the others it may be surer
    truth = labels.numpy()
    plain, better = (probability_of(scores, *parts).numpy() for parts in ((alone,), (heat, found)))
    assert ece(truth, better) < ece(truth, plain) / 2
    assert log_loss(truth, better) < log_loss(truth, plain)
    assert plain.argmax(axis=1).tolist() == better.argmax(axis=1).tolist()
    np.testing.assert_allclose(better.sum(axis=1), 1, atol=1e-6)


def test_where_scores_mean_what_they_say_there_is_no_doubt():
    scores, target = drawn()
    alone = temperature(scores, target)
    assert doubt(scores, target, alone) == (alone, 0.0)
    several = drawn(several=True)
    assert doubt(*several, 0.7) == (0.7, 0.0)


def test_few_nodes_are_no_reason_to_doubt():
    scores, labels = noisy(0.1, size=20)
    alone = temperature(scores, labels)
    assert doubt(scores, labels, alone) == (alone, 0.0)


def test_a_doubt_is_kept_and_a_damaged_one_refused(tmp_path):
    graph = class_graph()
    clf = NodeClassifier(**SETTINGS).fit(graph)
    clf._run = replace(clf._run, doubt=0.25)
    clf.save(tmp_path / "run")
    expected = clf.predict_proba(graph)
    assert expected.min() >= 0.25 / 3 - 1e-6
    np.testing.assert_array_equal(NodeClassifier.load(tmp_path / "run").predict_proba(graph), expected)
    path = tmp_path / "run" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"doubt": 1.5}))
    with pytest.raises(UserError, match=r"its doubt is 1\.5"):
        NodeClassifier.load(tmp_path / "run")
