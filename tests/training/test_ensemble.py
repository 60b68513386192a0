"""Members are trained as if alone, weighed by validation nodes, and answer with the mean of what they say."""

import time
from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from examples import MEMBERS, multi_label_graph, named_graph, train_model
from examples import SETTINGS as EXAMPLE
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, logit, softmax
from small import HERE, same_weights, weights_of

from nagphormer import TrainConfig, UserError, log_loss
from nagphormer.inference import predict
from nagphormer.metrics import accuracy, micro_f1
from nagphormer.tokens.labels import label_bytes
from nagphormer.training import calibration, ensemble
from nagphormer.training.ensemble import (
    FEW,
    LEAST,
    PICKS,
    MeanModel,
    as_scores,
    chosen_weights,
    cooled,
    lead_of,
    runs_of,
    train_members,
)

pytestmark = pytest.mark.usefixtures("one_thread")
COMMON = EXAMPLE | {"network": "mlp", "linear": False, "epochs": 12}
GRAPH, SEVERAL = named_graph(), multi_label_graph()


def configs(members=MEMBERS, **changes):
    return {name: TrainConfig(**COMMON | changes | own) for name, own in members.items()}


def trained(graph=GRAPH, members=MEMBERS, limits=(inf, inf), **changes):
    time_limit, room = limits
    return train_members(graph, configs(members, **changes), HERE, "mine", {}, time_limit=time_limit, room=room)


@pytest.fixture
def said(monkeypatch):
    """Lines about what goes on."""
    lines = []
    monkeypatch.setattr(ensemble, "note", lines.append)
    return lines


@pytest.fixture(scope="module", params=[False, True], ids=["classes", "several labels"])
def found(request):
    """A graph, its ensemble, and the tokens of the members."""
    graph = SEVERAL if request.param else GRAPH
    return graph, *trained(graph)


def answers(num_members, num_nodes, num_classes=3, seed=0, several=False):
    """Probabilities and the truth, about which the first members know most, (M, n, C) and (n,) or (n, C)."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, num_classes, num_nodes)
    if several:
        target = rng.integers(0, 2, (num_nodes, num_classes))
    known = target if several else np.eye(num_classes)[target]
    knowledge = np.linspace(2, 0, num_members)[:, None, None]
    scores = rng.standard_normal((num_members, num_nodes, num_classes)) + knowledge * (2 * known - 1)
    probability = expit(scores) if several else softmax(scores, axis=2)
    return torch.from_numpy(probability).float(), torch.from_numpy(target)


def surprise(probability, target):
    p = np.clip(probability, 1e-7, 1 - 1e-7)
    if target.ndim == 2:
        return -np.where(target > 0, np.log(p), np.log(1 - p)).mean()
    return -np.log(p[np.arange(len(target)), target]).mean()


# weights


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("num_nodes", [3, 100, 5000])
def test_weights_are_those_of_greedy_selection_shrunk_to_the_mean(num_nodes, several):
    probability, target = answers(4, num_nodes, several=several)
    held, truth = probability.numpy().astype(np.float64), target.numpy()
    picked = []
    for _ in range(50):
        losses = [surprise(held[[*picked, number]].mean(axis=0), truth) for number in range(4)]
        picked.append(int(np.argmin(losses)))
    expected = num_nodes / (num_nodes + 100) * np.bincount(picked, minlength=4) / 50 + 100 / (num_nodes + 100) / 4
    expected[expected < 0.02] = 0
    np.testing.assert_allclose(chosen_weights(probability, target), expected / expected.sum(), atol=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 300), st.integers(0, 99), st.booleans())
def test_weights_sum_to_one_and_none_is_below_the_least(num_members, num_nodes, seed, several):
    weights = chosen_weights(*answers(num_members, num_nodes, seed=seed, several=several))
    assert weights.sum() == pytest.approx(1)
    assert ((weights == 0) | (weights >= LEAST)).all()


def test_of_few_validation_nodes_all_members_count_alike():
    for count, tolerance in ((1, 0.01), (10, 0.08)):
        np.testing.assert_allclose(chosen_weights(*answers(4, count)), 0.25, atol=tolerance)


def test_of_many_validation_nodes_a_useless_member_gets_nothing():
    probability, target = answers(3, 20_000)
    probability[2] = torch.from_numpy(np.random.default_rng(1).dirichlet([1, 1, 1], 20_000))
    weights = chosen_weights(probability, target)
    assert weights[2] == 0
    assert weights[0] > weights[1]


def test_weights_do_not_lose_to_the_best_member():
    probability, target = answers(4, 5000)
    mean = np.tensordot(chosen_weights(probability, target), probability.numpy(), axes=1)
    assert surprise(mean, target.numpy()) <= min(surprise(each, target.numpy()) for each in probability.numpy())


def test_weights_are_the_same_every_time_and_one_member_has_all():
    one, again = (chosen_weights(*answers(5, 200, seed=3)) for _ in range(2))
    assert np.array_equal(one, again)
    assert chosen_weights(*answers(1, 200)).tolist() == [1]


def test_members_that_are_sure_and_wrong_are_weighed_too():
    wrong = torch.arange(400) % 10
    probability = torch.stack([torch.eye(2)[(wrong < count).long()] for count in (4, 1)])  # 0 for the truth there
    weights = chosen_weights(probability, torch.zeros(400, dtype=torch.long))
    assert weights[1] > 0.6
    assert (PICKS, FEW) == (50, 100)


def test_a_member_that_gets_too_little_is_left_out():
    probability = torch.tensor([[[0.9, 0.1]] * 10_000, [[0.1, 0.9]] * 10_000])
    assert chosen_weights(probability, torch.zeros(10_000, dtype=torch.long)).tolist() == [1, 0]


# probabilities


@pytest.mark.parametrize("several", [False, True])
def test_a_temperature_of_one_changes_nothing_and_a_higher_one_is_less_sure(several):
    probability, _ = answers(1, 50, several=several)
    torch.testing.assert_close(cooled(probability[0], 1.0, several), probability[0])
    colder, hotter = (cooled(probability[0], heat, several) for heat in (0.5, 2.0))
    surest = probability[0].argmax(dim=1)
    for one, other in ((colder, probability[0]), (probability[0], hotter)):
        assert torch.equal(one.argmax(dim=1), surest)
        sure = [(each - 0.5).abs() if several else each.amax(dim=1) for each in (one, other)]
        assert (sure[0] >= sure[1] - 1e-6).all()
        assert (sure[0] > sure[1] + 0.01).any()


@pytest.mark.parametrize("several", [False, True])
def test_probabilities_of_zero_and_one_stay_numbers(several):
    probability = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert as_scores(probability, several).isfinite().all()
    torch.testing.assert_close(cooled(probability, 1.0, several), probability, atol=1e-6, rtol=0)


# training


def test_a_member_is_what_it_would_be_alone(found):
    graph, run, _ = found
    for name, config in configs().items():
        alone, _ = train_model(graph, config, here=HERE)
        (part,) = [part for part in run.parts if part.name == name]
        assert same_weights(weights_of(part.run.best.model), weights_of(alone.best.model))
        assert part.run.temperature == alone.temperature
        assert part.run.best.history[-1]["val_loss"] == alone.best.history[-1]["val_loss"]


def test_the_answer_is_the_weighted_mean_of_calibrated_members_and_then_cooled(found):
    graph, run, sources = found
    nodes = np.arange(graph.num_nodes)
    own = {part.name: predict.probabilities(part.run, sources[part.name], nodes) for part in run.parts}
    mean = sum(part.weight * own[part.name].astype(np.float64) for part in run.parts)
    if run.classes.multi_label:
        expected = expit(logit(np.clip(mean, 1e-7, 1 - 1e-7)) / run.temperature)
    else:
        expected = softmax(np.log(mean) / run.temperature, axis=1)
    answer = predict.probabilities(run, tuple(sources[part.name] for part in run.asked), nodes)
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    assert abs(answer - mean).max() > 1e-4  # it was cooled


def test_weights_and_temperature_are_those_of_the_validation_nodes(found):
    graph, run, sources = found
    nodes = graph.splits["val"]
    target = torch.from_numpy(run.classes.targets(graph, nodes))
    own = np.stack([predict.probabilities(part.run, sources[part.name], nodes) for part in run.parts])
    weights = chosen_weights(torch.from_numpy(own), target)
    np.testing.assert_allclose([part.weight for part in run.parts], weights, atol=1e-6)
    mean = np.tensordot(weights, own, axes=1)
    scores = logit(mean) if run.classes.multi_label else log_softmax(np.log(mean), axis=1)
    assert run.temperature == pytest.approx(calibration.temperature(torch.from_numpy(scores), target), rel=1e-3)


def test_what_is_said_of_a_member_is_its_score_on_the_validation_nodes(found):
    graph, run, sources = found
    nodes = graph.splits["val"]
    target, measure = run.classes.targets(graph, nodes), micro_f1 if run.classes.multi_label else accuracy
    for part in run.parts:
        own = predict.probabilities(part.run, sources[part.name], nodes)
        assert part.score == pytest.approx(measure(target, own))
        assert part.loss == pytest.approx(log_loss(target, own), rel=1e-5)
        assert part.score == pytest.approx(part.run.best.outcome["best_metric"])
        assert part.train_seconds > 0
        assert part.predict_seconds > 0


def test_members_stand_in_the_order_of_the_recipe_and_are_asked_by_weight(found):
    _, run, _ = found
    assert [part.name for part in run.parts] == list(MEMBERS)
    weights = [part.weight for part in run.asked]
    assert weights == sorted(weights, reverse=True)
    assert run.lead is lead_of(run) is runs_of(run)[0] is run.asked[0].run


def test_a_member_without_weight_is_not_asked(found):
    _, run, _ = found
    first, *rest = run.parts
    less = replace(run, parts=(replace(first, weight=0.0), *rest))
    assert [part.name for part in less.asked] == [part.name for part in run.asked if part is not first]
    assert set(map(id, runs_of(less))) == {id(part.run) for part in rest}
    other = less.of_parts(less.asked)
    assert sum(part.weight for part in other.parts) == pytest.approx(1)
    for one, same in zip(other.parts, less.asked, strict=True):
        assert one.weight == pytest.approx(same.weight / sum(part.weight for part in rest))


def test_training_again_gives_the_same(found):
    graph, run, _ = found
    again, _ = trained(graph)
    assert [part.weight for part in again.parts] == [part.weight for part in run.parts]
    assert again.temperature == run.temperature


def test_the_mean_model_gives_from_tokens_what_is_predicted(found):
    _, run, sources = found
    model, nodes = MeanModel(run).eval(), np.arange(10)
    tokens = []
    for part in run.asked:
        source = sources[part.name]
        labels = [torch.from_numpy(source.labels.whole[nodes]).float()] if part.name == "labels" else []
        store = getattr(source, "inner", source)
        tokens.append((store.gather(torch.from_numpy(nodes)), *labels))
    with torch.no_grad():
        found = model(tokens)
    expected = predict.probabilities(run, tuple(sources[part.name] for part in run.asked), nodes)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_a_member_that_diverges_is_left_out_and_said_to_be(said):
    wild = {"lr": 1e30, "warmup_updates": 0, "averaging": 0.0, "network": "linear"}
    run, sources = trained(members={"wild": wild, "tame": {}})
    assert [part.name for part in run.parts] == list(sources) == ["tame"]
    assert run.parts[0].weight == 1
    assert "  wild is left out: its loss stopped being a number before an epoch was finished" in said
    with pytest.raises(UserError, match="every member diverged: are the features very large"):
        trained(members={"wild": wild, "wilder": wild | {"seed": 1}})


# limits


def test_the_first_member_always_ends(said):
    run, _ = trained(limits=(1e-6, inf))
    assert [part.name for part in run.parts] == ["copies"]
    assert run.parts[0].run.best.outcome["epochs"] == 12
    assert "3 of 4 members are left out: 0 s are left" in said
    assert said[1] == "member 1 of 4, copies; 0 s are left"


def test_a_member_is_stopped_in_time_and_no_other_is_begun():
    endless = {"epochs": 20_000, "patience": 20_000}
    start = time.monotonic()
    run, _ = trained(members={"short": {}, "endless": endless, "never": endless}, limits=(2.0, inf))
    assert 1 < time.monotonic() - start < 5
    short, long = run.parts
    assert (short.run.best.ended_by, long.run.best.ended_by) == ("epochs", "time")
    assert long.run.best.outcome["out_of_time"]
    assert long.run.best.outcome["best_epoch"] > 0
    assert "out_of_time" not in short.run.best.outcome


def test_time_to_predict_every_node_is_kept_free():
    each = ensemble._Trained("a", None, None, torch.zeros(10, 3), "accuracy", 0.0, 0.0, 6.0, 0.5)
    other = replace(each, train_seconds=3.0, predict_seconds=0.25)
    assert ensemble._seconds_to_predict([each, other], GRAPH) == pytest.approx(0.75 * 120 / 10)
    assert ensemble._least_time([each, other]) == 1


def test_no_member_is_begun_in_the_time_that_predicting_takes(monkeypatch):
    monkeypatch.setattr(ensemble, "_seconds_to_predict", lambda trained, graph: 900.0 * len(trained))
    run, _ = trained(limits=(1000.0, inf), epochs=1)
    assert [part.name for part in run.parts] == ["copies", "labels"]


BYTES = 120 * 3 * 8 * 2
"""Of tokens with two hops."""


@pytest.mark.parametrize(
    ("room", "copies", "names"),
    [
        (3 * BYTES + BYTES // 3, 2, ["copies", "labels", "paper", "flat"]),
        (3 * BYTES + BYTES // 3 - 1, 2, ["copies", "labels", "paper"]),
        (3 * BYTES - 1, 0, ["copies", "labels", "paper", "flat"]),
        (BYTES, 0, ["copies", "labels", "paper"]),
        (1, 0, ["copies"]),
    ],
)
def test_copies_are_left_out_where_they_do_not_fit_and_then_members(room, copies, names, said):
    run, _ = trained(limits=(inf, room), epochs=1)
    assert [part.name for part in run.parts] == names
    assert run.parts[0].run.config.edge_copies == copies
    assert any("copies with fewer edges do not fit" in line for line in said) == (copies == 0)
    assert any("left out: " in line for line in said) == (len(names) < 4)


def test_a_member_whose_labels_do_not_fit_memory_is_left_out(said):
    here = replace(HERE, memory=label_bytes(120, 72, 3, 2) - 1)
    run, _ = train_members(GRAPH, configs(epochs=1), here, "mine", {})
    assert [part.name for part in run.parts] == ["copies", "paper", "flat"]
    assert said[0] == "labels is left out: the tokens of labels that it reads do not fit memory"


def test_what_fits_is_made_once(said):
    members = {name: {"edge_copies": 2, "seed": seed} for seed, name in enumerate("abc")}
    run, _ = trained(members=members, limits=(inf, 3 * BYTES), epochs=1)
    assert [part.run.config.edge_copies for part in run.parts] == [2, 2, 2]
    assert "3 members on tokens of 17.3 kB" in said


def test_tokens_that_are_never_made_take_no_room(said):
    first = {"network": "transformer", "project_first": "always"}
    members = {"one": first, "other": first | {"hops": 1}}
    run, _ = trained(named_graph(sparse=True), members, limits=(inf, 1), epochs=1)
    assert [part.name for part in run.parts] == ["one", "other"]
    assert "2 members on tokens of 0 B" in said


# another graph


def few_known(graph):
    """A part of the graph without most training nodes."""
    return graph.subgraph(np.setdiff1d(np.arange(graph.num_nodes), graph.splits["train"][30:]))


def test_members_that_read_labels_answer_where_their_nodes_are():
    run, _ = trained()
    part = GRAPH.subgraph(np.arange(100))
    assert predict.usable(run, part) is run
    assert predict.usable(run, GRAPH) is run


def test_members_that_read_labels_are_left_out_where_their_nodes_are_not(found):
    graph, run, _ = found
    part = few_known(graph)
    with pytest.warns(UserWarning, match="too few of the training nodes for members that read their labels: labels"):
        able = predict.usable(run, part)
    left = [each for each in run.parts if each.name != "labels"]
    assert [each.name for each in able.asked] == [each.name for each in run.asked if each.name != "labels"]
    for one, other in zip(able.asked, sorted(left, key=lambda each: -each.weight), strict=True):
        assert one.weight == pytest.approx(other.weight / sum(each.weight for each in left))
    probability = predict.probabilities(able, predict.open_sources(able, part, "cpu"), np.arange(20))
    assert np.isfinite(probability).all()


def test_a_graph_that_no_member_can_be_used_on_is_refused():
    run, _ = trained(members={"one": {"label_hops": 1}, "two": {"label_hops": 2}})
    part = few_known(GRAPH)
    assert predict.usable(run, part) is run
    with pytest.raises(UserError, match="train with label_hops=0 for a model that moves to any graph"):
        predict.open_sources(run, part, "cpu")


def test_what_a_member_scored_is_said(said):
    run, _ = trained(epochs=2)
    for number, part in enumerate(run.parts, start=1):
        assert any(line.split(";")[0] == f"member {number} of 4, {part.name}" for line in said)
        assert f"  {part.name}: validation accuracy {part.score:.4f}, log loss {part.loss:.4f}" in said
