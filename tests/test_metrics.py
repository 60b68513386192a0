import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from nagphormer import UserError
from nagphormer.metrics import (
    BINS,
    METRICS,
    accuracy,
    average_precision,
    check_metric,
    decide,
    ece,
    log_loss,
    macro_f1,
    micro_f1,
    roc_auc,
)


@st.composite
def single_label(draw, min_classes=2, max_classes=6, all_classes=False):
    """Targets (n,) and probabilities (n, C); coarse ones are full of ties, zeros and ones."""
    num_classes, num_nodes = draw(st.integers(min_classes, max_classes)), draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    target = rng.integers(0, num_classes, num_nodes)
    if all_classes:
        target = rng.permutation(np.concatenate([target, np.arange(num_classes)]))
    if draw(st.booleans()):
        return target, rng.multinomial(8, np.full(num_classes, 1 / num_classes), len(target)) / 8
    return target, rng.dirichlet(np.ones(num_classes), len(target))


@st.composite
def multi_label(draw, all_classes=False):
    """Targets (n, C) of 0 and 1, and probabilities (n, C)."""
    num_labels, num_nodes = draw(st.integers(2, 5)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    target = (rng.random((num_nodes, num_labels)) < rng.random(num_labels)).astype(np.int64)
    if all_classes:
        target = np.vstack([target, np.zeros((1, num_labels), np.int64), np.ones((1, num_labels), np.int64)])
    probability = rng.random(target.shape)
    return target, probability.round(1) if draw(st.booleans()) else probability


either = single_label() | multi_label()


def as_sklearn_wants(target, probability):
    return target, (probability > 0.5).astype(int) if target.ndim == 2 else probability.argmax(axis=1)


@settings(deadline=None, max_examples=50)
@given(either)
def test_accuracy_is_scikit_learns(data):
    assert accuracy(*data) == pytest.approx(sk.accuracy_score(*as_sklearn_wants(*data)))


@settings(deadline=None, max_examples=50)
@given(either)
def test_macro_f1_is_scikit_learns(data):
    expected = sk.f1_score(*as_sklearn_wants(*data), average="macro", zero_division=0)
    assert macro_f1(*data) == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(either)
def test_micro_f1_is_scikit_learns(data):
    expected = sk.f1_score(*as_sklearn_wants(*data), average="micro", zero_division=0)
    assert micro_f1(*data) == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(single_label())
def test_micro_f1_of_single_labels_is_accuracy(data):
    assert micro_f1(*data) == pytest.approx(accuracy(*data))


@settings(deadline=None, max_examples=50)
@given(single_label(max_classes=2, all_classes=True))
def test_roc_auc_of_two_classes_is_scikit_learns(data):
    target, probability = data
    assert roc_auc(target, probability) == pytest.approx(sk.roc_auc_score(target, probability[:, 1]))


@settings(deadline=None, max_examples=50)
@given(single_label(min_classes=3, all_classes=True))
def test_roc_auc_of_many_classes_is_scikit_learns_one_against_the_rest(data):
    expected = sk.roc_auc_score(*data, multi_class="ovr", average="macro")
    assert roc_auc(*data) == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(multi_label(all_classes=True))
def test_roc_auc_of_several_labels_is_scikit_learns(data):
    assert roc_auc(*data) == pytest.approx(sk.roc_auc_score(*data, average="macro"))


@settings(deadline=None, max_examples=50)
@given(single_label(max_classes=2, all_classes=True))
def test_average_precision_of_two_classes_is_scikit_learns(data):
    target, probability = data
    assert average_precision(target, probability) == pytest.approx(
        sk.average_precision_score(target, probability[:, 1])
    )


@settings(deadline=None, max_examples=50)
@given(single_label(min_classes=3, all_classes=True))
def test_average_precision_of_many_classes_is_the_mean_of_each_against_the_rest(data):
    assert average_precision(*data) == pytest.approx(sk.average_precision_score(*data, average="macro"))


@settings(deadline=None, max_examples=50)
@given(multi_label(all_classes=True))
def test_average_precision_of_several_labels_is_scikit_learns(data):
    assert average_precision(*data) == pytest.approx(sk.average_precision_score(*data, average="macro"))


@settings(deadline=None, max_examples=50)
@given(single_label())
def test_log_loss_is_scikit_learns(data):
    target, probability = data
    expected = sk.log_loss(target, probability, labels=np.arange(probability.shape[1]))
    assert log_loss(target, probability) == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(multi_label())
def test_log_loss_of_several_labels_is_the_mean_of_scikit_learns(data):
    target, probability = data
    columns = zip(target.T, probability.T, strict=True)
    assert log_loss(target, probability) == pytest.approx(np.mean([sk.log_loss(*c, labels=[0, 1]) for c in columns]))


@settings(deadline=None, max_examples=50)
@given(either)
def test_ece_is_the_gap_between_scikit_learns_calibration_curves(data):
    target, probability = data
    if target.ndim == 2:
        confidence, right = probability.ravel(), target.ravel()
    else:
        confidence, right = probability.max(axis=1), (probability.argmax(axis=1) == target).astype(int)
    share, mean = calibration_curve(right, confidence, n_bins=15)
    upper = np.ceil(np.maximum(confidence, 1e-9) * 15 - 1e-9)  # each bin holds its upper edge
    sizes = np.unique(upper, return_counts=True)[1]
    assert ece(target, probability) == pytest.approx((sizes * np.abs(share - mean)).sum() / len(confidence))


@settings(deadline=None, max_examples=50)
@given(single_label(all_classes=True) | multi_label(all_classes=True), st.randoms(use_true_random=False))
def test_the_order_of_nodes_changes_no_metric(data, random):
    order = list(range(len(data[0])))
    random.shuffle(order)
    target, probability = data
    for name, metric in METRICS.items():
        assert metric(target[order], probability[order]) == pytest.approx(metric(target, probability)), name


def test_ece_by_hand():
    probability = np.array([[0.9, 0.1], [0.1, 0.9], [0.65, 0.35], [0.65, 0.35]])
    assert ece(np.array([0, 0, 0, 0]), probability) == pytest.approx(0.5 * 0.4 + 0.5 * 0.35)


def test_ece_of_certain_predictions_is_the_error_rate():
    assert ece(np.array([0, 1, 1, 1]), np.eye(2)[[0, 1, 1, 0]]) == 0.25
    assert ece(np.array([[0, 1], [1, 1]]), np.array([[0.0, 1.0], [0.0, 1.0]])) == 0.25


def test_there_are_fifteen_bins():
    assert BINS == 15
    target, probability = np.array([0, 1]), np.array([[0.61, 0.39], [0.66, 0.34]])  # 9.15 and 9.9 fifteenths
    assert ece(target, probability) == pytest.approx(abs(1 - 1.27) / 2)
    target, probability = np.array([0, 1]), np.array([[0.66, 0.34], [0.67, 0.33]])  # 9.9 and 10.05 fifteenths
    assert ece(target, probability) == pytest.approx((0.34 + 0.67) / 2)


def test_a_bin_holds_its_upper_edge():
    target, probability = np.array([[1, 0]]), np.array([[0.2, 0.15]])  # 3 and 2.25 fifteenths
    assert ece(target, probability) == pytest.approx((1 - 0.35) / 2)


def test_roc_auc_leaves_out_classes_that_no_node_has():
    rng = np.random.default_rng(0)
    target, probability = rng.choice([0, 2, 3], 50), rng.dirichlet(np.ones(5), 50)
    each = [sk.roc_auc_score(target == c, probability[:, c]) for c in (0, 2, 3)]
    assert roc_auc(target, probability) == pytest.approx(np.mean(each))


def test_roc_auc_leaves_out_labels_that_every_node_has():
    target, probability = np.array([[1, 0], [1, 1]]), np.array([[0.5, 0.2], [0.5, 0.1]])
    assert roc_auc(target, probability) == 0


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision"])
@pytest.mark.parametrize("target", [np.array([1, 1, 1]), np.array([[1, 0]] * 3)])
def test_the_area_under_a_curve_of_one_class_is_refused(target, metric):
    with pytest.raises(UserError, match=f"^{metric} needs at least two classes"):
        METRICS[metric](target, np.full((3, 2), 0.5))


def test_average_precision_leaves_out_labels_that_every_node_has():
    target, probability = np.array([[1, 0], [1, 1]]), np.array([[0.5, 0.2], [0.5, 0.1]])
    assert average_precision(target, probability) == 0.5


def test_a_task_of_one_label_is_about_its_ones():
    target, probability = np.array([[1], [1], [0], [0]]), np.array([[0.9], [0.2], [0.7], [0.1]])
    assert micro_f1(target, probability) == macro_f1(target, probability) == 0.5
    assert micro_f1(1 - target[:2], probability[1::2]) == 0


def test_macro_f1_leaves_out_classes_neither_true_nor_predicted():
    assert macro_f1(np.array([0, 0]), np.eye(4)[[0, 0]]) == 1
    assert macro_f1(np.array([0, 0]), np.eye(4)[[0, 2]]) == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_impossible_truth_costs_much_but_not_infinitely_much(dtype):
    expected = -np.log(np.finfo(dtype).eps)
    assert log_loss(np.array([1]), np.array([[1, 0]], dtype)) == pytest.approx(expected, rel=1e-6)
    assert log_loss(np.array([[1]]), np.array([[0]], dtype)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("multi", [False, True])
def test_float32_probabilities_score_as_float64_ones(multi):
    rng = np.random.default_rng(0)
    probability = rng.dirichlet(np.ones(4), 200).astype(np.float32)
    target = rng.integers(0, 2, (200, 4)) if multi else rng.integers(0, 4, 200)
    for name, metric in METRICS.items():
        expected = metric(target, probability.astype(np.float64))
        assert metric(target, probability) == pytest.approx(expected, rel=1e-5), name


def test_decisions_are_the_likeliest_class_or_every_label_above_one_half():
    probability = np.array([[0.5, 0.5], [0.4, 0.6]])
    assert decide(probability, multi_label=False).tolist() == [0, 1]
    assert decide(probability, multi_label=True).tolist() == [[0, 0], [0, 1]]


def test_metrics_are_plain_floats():
    data = np.array([0, 1]), np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    assert {type(metric(*data)) for metric in METRICS.values()} == {float}


def test_known_metrics_pass():
    for name in ("accuracy", "macro_f1", "micro_f1", "roc_auc", "average_precision", "log_loss", "ece"):
        check_metric(name)


@pytest.mark.parametrize(("wrong", "right"), [("acuracy", "accuracy"), ("marco_f1", "macro_f1"), ("rocauc", "roc_auc")])
def test_unknown_metrics_are_refused_with_the_nearest_one(wrong, right):
    with pytest.raises(UserError, match=f"unknown metric '{wrong}'.*ece.*Did you mean '{right}'"):
        check_metric(wrong)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize(
    ("target", "probability", "message"),
    [
        ([0, 1], [0, 1], "and probabilities .n, C., not shapes"),
        ([0, 1, 1], [[0.2, 0.8], [0.5, 0.5]], "not shapes .3,. and .2, 2."),
        ([0, 2], [[0.2, 0.8], [0.5, 0.5]], "whole numbers from 0 to 1"),
        ([0, -1], [[0.2, 0.8], [0.5, 0.5]], "whole numbers from 0 to 1"),
        (["a", "b"], [[0.2, 0.8], [0.5, 0.5]], "whole numbers from 0 to 1"),
        (np.zeros(0, int), np.zeros((0, 2)), "no nodes at all"),
    ],
)
def test_what_no_metric_can_be_taken_of_is_refused(metric, target, probability, message):
    with pytest.raises(UserError, match=message):
        metric(target, probability)


def test_lists_are_measured_too():
    assert accuracy([0, 1], [[0.9, 0.1], [0.8, 0.2]]) == 0.5
