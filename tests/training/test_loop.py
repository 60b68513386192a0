import numpy as np
import pytest
import torch
from examples import multi_label_graph
from small import class_graph, embedded, initial_network, make_trainer, quick, same_weights, sparse_graph, weights_of

from nagphormer import from_scipy
from nagphormer.metrics import METRICS, micro_f1
from nagphormer.training import forward
from nagphormer.training.batches import Batch
from nagphormer.training.checkpoint import Checkpoints
from nagphormer.training.history import History
from nagphormer.training.loop import evaluate
from nagphormer.training.optimizer import AdamW
from nagphormer.training.stopping import EarlyStopping

GRAPH = class_graph()  # 90 nodes to train, 30 to validate
EASY = {"hidden_dim": 32, "batch_size": 16, "epochs": 15}
STOCHASTIC = {"dropout": 0.3, "attention_dropout": 0.3, "feature_dropout": 0.2}


def trained(graph=GRAPH, **changes):
    """A trainer that has run, and how that ended."""
    trainer = make_trainer(graph, quick(**changes))
    return trainer, trainer.run()


def step(trainer, nodes):
    """One update by a batch."""
    return trainer._step(len(nodes), list(trainer.source.batches(trainer._pieces(nodes))))


def gradients_of_first_update(trainer, batch):
    """The loss and the gradients that the optimizer is given for a batch."""
    found = {}

    def note():
        found.update({name: weight.grad.clone() for name, weight in trainer.model.named_parameters()})

    trainer._optimizer.step = note
    return step(trainer, batch), found


def norm(gradients):
    return float(torch.stack([gradient.norm() for gradient in gradients.values()]).norm())


def accuracy_of(trainer, split):
    return evaluate(trainer.model, trainer.source, trainer.task, GRAPH.splits[split], "fp32")[1]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("project_first", ["never", "always"])
def test_the_same_seed_gives_the_same_weights_to_the_bit(project_first, precision):
    changes = {"project_first": project_first, "precision": precision, **STOCHASTIC}
    graph = class_graph(sparse=True)
    runs = [trained(graph, **changes) for _ in range(2)]
    assert same_weights(*(weights_of(trainer.model) for trainer, _ in runs))
    assert runs[0][1] == runs[1][1]


def test_another_seed_gives_other_weights():
    one, other = (weights_of(trained(seed=seed)[0].model) for seed in (0, 1))
    assert all(not torch.equal(one[name], other[name]) for name in one if "readout" not in name)


def test_batches_and_dropout_follow_the_seed_too():
    initial = weights_of(initial_network(GRAPH, quick()))
    for changes in ({"batch_size": 32}, {"batch_size": 1000, "dropout": 0.3}):
        found = []
        for seed in (0, 1):
            trainer = make_trainer(GRAPH, quick(seed=seed, epochs=1, **changes))
            trainer.model.load_state_dict(initial)
            trainer.run()
            found.append(weights_of(trainer.model))
        assert not same_weights(*found)


def test_every_epoch_draws_other_batches():
    trainer, seen = make_trainer(GRAPH, quick(epochs=3)), []
    learn = trainer._step
    trainer._step = lambda size, pieces: seen.append(pieces[0].nodes) or learn(size, pieces)
    trainer.run()
    assert [len(batch) for batch in seen] == [32, 32, 26] * 3
    epochs = [torch.cat(seen[start : start + 3]) for start in (0, 3, 6)]
    for order in epochs:
        assert order.sort().values.tolist() == GRAPH.splits["train"].tolist()
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


def test_training_leaves_torchs_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    trained(**STOCHASTIC)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_does_not_depend_on_torchs_random_state():
    found = []
    for seed in (5, 6):
        torch.manual_seed(seed)
        found.append(weights_of(trained(**STOCHASTIC)[0].model))
    assert same_weights(*found)


def test_a_separable_graph_is_learned():
    trainer, outcome = trained(**EASY)
    assert outcome.best_metric > 0.9
    assert accuracy_of(trainer, "test") > 0.9
    assert accuracy_of(trained(**EASY, hops=0)[0], "test") < accuracy_of(trainer, "test")


def test_several_labels_per_node_are_learned():
    labels = np.stack([GRAPH.labels == 0, GRAPH.labels != 2, GRAPH.labels > 0], axis=1)
    graph = from_scipy(GRAPH.adjacency(), GRAPH.features, labels, GRAPH.splits)
    trainer, outcome = trained(graph, **EASY)
    assert outcome.best_metric > 0.9
    assert "val_micro_f1" in trainer.history.records[0]
    assert trainer.model(torch.from_numpy(np.zeros((1, 3, 8), np.float32))).shape == (1, 3)


def test_balanced_class_weights_find_more_of_a_rare_class():
    graph, recall = rare_graph(), {}
    labels, splits = graph.labels, graph.splits
    for weights in ("none", "balanced"):
        trainer, _ = trained(graph, class_weights=weights, hops=0, epochs=15, batch_size=200)
        with torch.no_grad():
            (hidden,) = embedded(trainer.source, trainer.model.embed, torch.from_numpy(splits["val"]))
            found = trainer.model.classify(hidden).argmax(dim=1).numpy()
        recall[weights] = found[labels[splits["val"]] == 1].mean()
    assert recall["balanced"] > recall["none"] + 0.2


def measure(monkeypatch, metric_of, loss_of):
    """Let early stopping see these instead of the true metric and loss of an epoch."""
    update = EarlyStopping.update
    told = lambda self, epoch, metric, loss: update(self, epoch, metric_of(epoch), loss_of(epoch))  # noqa: E731
    monkeypatch.setattr(EarlyStopping, "update", told)


def test_the_best_epochs_weights_are_restored_after_training_went_on(monkeypatch):
    measure(monkeypatch, lambda epoch: float(epoch == 3), lambda epoch: 1.0)
    trainer, outcome = trained(epochs=7, lr=0.03, **STOCHASTIC)
    assert (outcome.best_epoch, outcome.epochs) == (3, 7)
    short, _ = trained(epochs=3, lr=0.03, **STOCHASTIC)
    assert same_weights(weights_of(trainer.model), weights_of(short.model))
    assert not same_weights(weights_of(trainer.model), weights_of(trained(epochs=2, lr=0.03, **STOCHASTIC)[0].model))
    assert not trainer.model.training
    loss, metric = evaluate(trainer.model, trainer.source, trainer.task, trainer.val_nodes, "fp32")
    assert (loss, metric) == tuple(trainer.history.records[2][name] for name in ("val_loss", "val_accuracy"))


def test_the_weights_that_are_judged_and_kept_are_averaged_over_epochs(monkeypatch):
    measure(monkeypatch, float, lambda epoch: 1.0)  # the last epoch is always the best
    own = [weights_of(trained(averaging=0.0, epochs=epochs)[0].model) for epochs in (1, 2, 3, 4)]
    for averaging, shares in ((0.5, (1 / 8, 1 / 8, 1 / 4, 1 / 2)), (0.9, (1 / 4, 1 / 4, 1 / 4, 1 / 4))):
        trainer, _ = trained(averaging=averaging, epochs=4)
        for name, found in weights_of(trainer.model).items():
            expected = sum(share * weights[name] for share, weights in zip(shares, own, strict=True))
            torch.testing.assert_close(found, expected)
        loss, _ = evaluate(trainer.model, trainer.source, trainer.task, trainer.val_nodes, "fp32")
        assert loss == trainer.history.records[-1]["val_loss"]


def test_training_stops_when_patience_has_run_out(monkeypatch):
    measure(monkeypatch, lambda epoch: 0.5, lambda epoch: abs(3.0 - epoch))  # epoch 3 is the best
    trainer, outcome = trained(epochs=300, patience=4)
    assert (outcome.best_epoch, outcome.epochs, len(trainer.history.records)) == (3, 7, 7)


def rare_graph():
    """400 nodes of which every tenth is of class 1, with features that tell a little."""
    rng = np.random.default_rng(0)
    labels = (np.arange(400) % 10 == 0).astype(int)
    features = labels[:, None] * 0.8 + rng.standard_normal((400, 4))
    nodes = rng.permutation(400)
    return from_scipy(np.zeros((400, 400)), features, labels, {"train": nodes[:200], "val": nodes[200:]})


@pytest.mark.parametrize("monitor", ["macro_f1", "roc_auc", "average_precision"])
def test_the_best_epoch_is_that_of_what_is_monitored(monitor):
    graph = rare_graph()
    trainer, outcome = trained(graph, monitor=monitor, hops=0, epochs=15, batch_size=50)
    records = trainer.history.records
    values = [record[f"val_{monitor}"] for record in records]
    assert records[outcome.best_epoch - 1][f"val_{monitor}"] == max(values) > min(values)
    assert outcome.best_metric == records[outcome.best_epoch - 1]["val_accuracy"]
    assert (outcome.best_loss, outcome.epochs) == (records[outcome.best_epoch - 1]["val_loss"], 15)
    nodes = graph.splits["val"]
    with torch.no_grad():
        logits = trainer.model(trainer.source.gather(torch.from_numpy(nodes)))
    expected = METRICS[monitor](graph.labels[nodes], logits.softmax(dim=1).numpy())
    assert max(values) == pytest.approx(expected, rel=1e-6)


def test_the_loss_is_monitored_downwards():
    trainer, outcome = trained(rare_graph(), monitor="loss", hops=0, epochs=40, batch_size=50, lr=0.03)
    losses = [record["val_loss"] for record in trainer.history.records]
    assert losses[outcome.best_epoch - 1] == outcome.best_loss == min(losses)
    assert 1 < outcome.best_epoch < 40
    accuracies = [record["val_accuracy"] for record in trainer.history.records]
    assert outcome.best_metric == accuracies[outcome.best_epoch - 1] < max(accuracies)


def test_several_labels_are_monitored_label_by_label():
    graph = multi_label_graph()
    trainer, outcome = trained(graph, monitor="average_precision")
    record, nodes = trainer.history.records[outcome.best_epoch - 1], graph.splits["val"]
    assert record["val_micro_f1"] == outcome.best_metric
    with torch.no_grad():
        logits = trainer.model(trainer.source.gather(torch.from_numpy(nodes)))
    expected = METRICS["average_precision"](graph.labels[nodes], logits.sigmoid().numpy())
    assert record["val_average_precision"] == pytest.approx(expected, rel=1e-6)


def test_what_is_monitored_in_pieces_is_that_of_the_whole(monkeypatch):
    whole, _ = trained(monitor="roc_auc")
    monkeypatch.setattr(forward, "CACHED_VALUES", 1)
    pieces, _ = trained(monitor="roc_auc")
    ours, theirs = ([record["val_roc_auc"] for record in each.history.records] for each in (pieces, whole))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_every_epoch_leaves_a_record():
    trainer, outcome = trained(warmup_updates=0, decay_updates=9, lr=0.01, final_lr=0.001)
    assert [record["epoch"] for record in trainer.history.records] == [1, 2, 3, 4]
    assert set(trainer.history.records[0]) == {"epoch", "train_loss", "val_loss", "val_accuracy", "lr", "seconds"}
    assert [record["lr"] for record in trainer.history.records] == pytest.approx([0.007, 0.004, 0.001, 0.001])
    assert (outcome.epochs, trainer.update, outcome.diverged) == (4, 12, "")


def test_the_training_loss_is_the_mean_over_nodes_not_over_batches():
    trainer = make_trainer(GRAPH, quick(batch_size=60))  # batches of 60 and 30
    trainer._step = lambda size, pieces: torch.tensor(1.0 if size == 60 else 4.0)
    assert trainer._train_epoch(1) == ""
    assert trainer._train_loss == 2.0


def test_network_and_linear_classifier_have_a_loss_each():
    trainer = make_trainer(GRAPH, quick())
    nodes = torch.from_numpy(GRAPH.splits["train"][:20].copy())
    with torch.no_grad():
        trainer.model.embed.weight.normal_()  # so that the two disagree
        (hidden,) = embedded(trainer.source, trainer.model.embed, nodes)
        own, linear = (trainer.task.loss(scores, nodes) for scores in trainer.model.scores(hidden))
        assert not torch.isclose(own, linear)
        torch.testing.assert_close(trainer._objective(Batch(nodes)), (own + linear) / 2)


def test_a_last_batch_of_one_is_trained_on():
    for project_first in ("never", "always"):
        trainer, _ = trained(class_graph(sparse=True), batch_size=89, project_first=project_first)
        assert trainer.update == 8


@pytest.mark.parametrize("readout", ["attention", "self", "sum"])
def test_no_hops_and_no_layers_are_trained(readout):
    assert trained(hops=0, num_layers=0, readout=readout)[1].best_epoch > 0


def test_gradients_are_clipped_to_the_norm_asked_for():
    batch = torch.from_numpy(GRAPH.splits["train"])
    _, free = gradients_of_first_update(make_trainer(GRAPH, quick()), batch)
    limit = norm(free) / 10
    _, clipped = gradients_of_first_update(make_trainer(GRAPH, quick(clip_norm=limit)), batch)
    assert norm(clipped) == pytest.approx(limit, rel=1e-3)
    for name, gradient in clipped.items():
        torch.testing.assert_close(gradient, free[name] / 10, rtol=1e-3, atol=1e-9)
    _, unchanged = gradients_of_first_update(make_trainer(GRAPH, quick(clip_norm=norm(free) * 2)), batch)
    assert same_weights(unchanged, free)


class Descent(AdamW):
    """Plain gradient descent."""

    def step(self):
        with torch.no_grad():
            for weight in self.weights:
                weight -= self._rate * weight.grad


def test_no_update_is_longer_than_the_clipped_gradient_allows():
    batch = torch.from_numpy(GRAPH.splits["train"])
    trainer = make_trainer(GRAPH, quick(clip_norm=1e-6, lr=0.01, warmup_updates=0))
    trainer._optimizer = Descent(trainer.model.parameters(), 0.0)
    before = weights_of(trainer.model)
    step(trainer, batch)
    after = weights_of(trainer.model)
    assert 0 < norm({name: after[name] - before[name] for name in after}) <= 0.01 * 1e-6 * 1.1


def test_a_batch_in_pieces_gives_the_gradients_of_the_whole(monkeypatch):
    batch = torch.from_numpy(GRAPH.splits["train"])
    whole_loss, whole = gradients_of_first_update(make_trainer(GRAPH, quick()), batch)
    monkeypatch.setattr(forward, "CACHED_VALUES", 1)
    trainer, sizes = make_trainer(GRAPH, quick()), []
    gather = trainer.source.gather
    trainer.source.gather = lambda nodes: sizes.append(len(nodes)) or gather(nodes)
    loss, pieces = gradients_of_first_update(trainer, batch)
    assert sizes == [16, 16, 16, 16, 16, 10]
    torch.testing.assert_close(loss, whole_loss, rtol=1e-5, atol=0)
    for name, gradient in whole.items():
        torch.testing.assert_close(pieces[name], gradient, rtol=1e-4, atol=1e-7)


def test_validation_in_pieces_gives_the_whole(monkeypatch):
    trainer, _ = trained()
    nodes = np.arange(GRAPH.num_nodes)
    whole = evaluate(trainer.model, trainer.source, trainer.task, nodes, "fp32")
    monkeypatch.setattr(forward, "CACHED_VALUES", 1)
    pieces = evaluate(trainer.model, trainer.source, trainer.task, nodes, "fp32")
    assert pieces == pytest.approx(whole, rel=1e-6)


def test_validation_is_done_without_dropout_and_measures_what_metrics_measure():
    trainer, _ = trained(**STOCHASTIC)
    trainer.model.train()
    nodes = GRAPH.splits["test"]
    loss, metric = evaluate(trainer.model, trainer.source, trainer.task, nodes, "fp32")
    with torch.no_grad():
        logits = trainer.model(trainer.source.gather(torch.from_numpy(nodes)))
    target = torch.from_numpy(GRAPH.labels[nodes])
    assert loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, target)), rel=1e-6)
    assert metric == pytest.approx(micro_f1(GRAPH.labels[nodes], logits.softmax(dim=1).numpy()))


def failing_at(update, value=float("nan")):
    """A trainer whose loss is no number at one update, counted from 1; an epoch has three."""
    trainer = make_trainer(GRAPH, quick(epochs=6))
    loss = trainer.task.loss

    def broken(*asked):
        found = loss(*asked)
        return found * value if trainer.model.training and trainer.update == update else found

    trainer.task.loss = broken
    return trainer


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_and_keeps_the_best_weights(value):
    trainer = failing_at(11, value)
    outcome = trainer.run()
    assert outcome.diverged == f"the loss became {value} in epoch 4, update 2 of 3"
    assert (outcome.epochs, trainer.update) == (3, 11)
    good, expected = trained(epochs=3)
    assert outcome.best_epoch == expected.best_epoch
    assert same_weights(weights_of(trainer.model), weights_of(good.model))


def test_a_loss_that_is_no_number_at_once_leaves_the_initial_weights():
    trainer = failing_at(1)
    initial = weights_of(trainer.model)
    outcome = trainer.run()
    assert (outcome.best_epoch, outcome.epochs) == (0, 0)
    assert outcome.diverged.endswith("in epoch 1, update 1 of 3")
    assert same_weights(weights_of(trainer.model), initial)


def test_a_validation_loss_that_is_no_number_stops():
    trainer = make_trainer(GRAPH, quick(epochs=6))
    loss = trainer.task.loss

    def broken(*asked):
        found = loss(*asked)
        return found if found.requires_grad or trainer.update < 9 else found * float("nan")

    trainer.task.loss = broken
    outcome = trainer.run()
    assert outcome.diverged == "the validation loss became nan after epoch 3"
    assert outcome.epochs == 2
    assert same_weights(weights_of(trainer.model), weights_of(trained(epochs=2)[0].model))


def test_a_huge_learning_rate_diverges_and_leaves_finite_weights():
    trainer, outcome = trained(lr=1e30, warmup_updates=0, epochs=20)
    assert "became" in outcome.diverged
    assert all(weight.isfinite().all() for weight in weights_of(trainer.model).values())


@pytest.mark.parametrize("averaging", [0.0, 0.7])
@pytest.mark.parametrize("best", [2, 6])
def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(best, averaging, tmp_path, monkeypatch):
    measure(monkeypatch, lambda epoch: float(epoch == best), lambda epoch: 1.0)
    changes = {"epochs": 6, "lr": 0.03, "averaging": averaging, **STOCHASTIC}
    expected, outcome = trained(**changes)

    def resumed(epochs):
        history, checkpoints = History(tmp_path / "metrics.jsonl"), Checkpoints(tmp_path / "state")
        trainer = make_trainer(GRAPH, quick(**changes | {"epochs": epochs}), history=history, checkpoints=checkpoints)
        return trainer, trainer.run()

    for epochs in (2, 3, 6, 6):
        trainer, found = resumed(epochs)
    assert found == outcome
    assert found.best_epoch == best
    assert same_weights(weights_of(trainer.model), weights_of(expected.model))
    without_time = [[record | {"seconds": 0} for record in one.history.records] for one in (trainer, expected)]
    assert without_time[0] == without_time[1]


def test_a_stopped_run_goes_on_watching_what_it_watched(tmp_path):
    changes = {"epochs": 6, "monitor": "roc_auc", **STOCHASTIC}
    expected, outcome = trained(**changes)
    for epochs in (3, 6, 6):
        parts = {"history": History(tmp_path / "metrics.jsonl"), "checkpoints": Checkpoints(tmp_path / "state")}
        trainer = make_trainer(GRAPH, quick(**changes | {"epochs": epochs}), **parts)
        found = trainer.run()
    assert found == outcome
    assert same_weights(weights_of(trainer.model), weights_of(expected.model))


def test_a_run_that_ran_out_of_patience_stays_ended_when_resumed(tmp_path, monkeypatch):
    measure(monkeypatch, lambda epoch: 0.5, lambda epoch: float(epoch))

    def run():
        parts = {"history": History(tmp_path / "metrics.jsonl"), "checkpoints": Checkpoints(tmp_path / "state")}
        trainer = make_trainer(GRAPH, quick(epochs=300, patience=3), **parts)
        return trainer.run(), weights_of(trainer.model), trainer.update

    (first, first_weights, _), (again, weights, updates) = run(), run()
    assert again == first
    assert first.epochs == 4
    assert same_weights(weights, first_weights)
    assert updates == 3 * 4  # as counted before; none was added


def test_bf16_is_near_fp32():
    losses = [trained(sparse_graph(), precision=precision)[1].best_loss for precision in ("fp32", "bf16")]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_an_epoch_is_judged_on_the_validation_nodes():
    trainer, outcome = trained(epochs=1)
    judged = evaluate(trainer.model, trainer.source, trainer.task, GRAPH.splits["val"], "fp32")
    assert judged == tuple(trainer.history.records[0][name] for name in ("val_loss", "val_accuracy"))
    assert judged == (outcome.best_loss, outcome.best_metric)


def test_an_epoch_is_judged_in_the_precision_of_training():
    trainer, _ = trained(sparse_graph(), precision="bf16", epochs=1)
    parts = (trainer.model, trainer.source, trainer.task, trainer.val_nodes)
    losses = {precision: evaluate(*parts, precision)[0] for precision in ("fp32", "bf16")}
    assert trainer.history.records[0]["val_loss"] == losses["bf16"] != losses["fp32"]


def test_every_seed_and_every_epoch_draws_other_dropout():
    seen = []
    for seed in (0, 1):
        trainer = make_trainer(GRAPH, quick(seed=seed, epochs=2, batch_size=1000))
        learn = trainer._step
        trainer._step = lambda *given, learn=learn: seen.append(torch.initial_seed()) or learn(*given)
        trainer.run()
    assert len(seen) == len(set(seen)) == 4


def test_weights_decay_as_asked():
    for weight_decay in (0.0, 0.5):
        assert make_trainer(GRAPH, quick(weight_decay=weight_decay))._optimizer.weight_decay == weight_decay


@pytest.mark.parametrize("asked", [False, True])
def test_patience_restarts_on_ties_where_it_is_asked_to(asked):
    trainer = make_trainer(GRAPH, quick(patience=3, restart_on_ties=asked))
    for epoch in range(1, 6):
        trainer.stopping.update(epoch, 0.5, 1.0)
    assert trainer.stopping.done is not asked
