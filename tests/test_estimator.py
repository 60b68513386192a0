import ast
import inspect
import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, fields, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import yaml
from examples import SETTINGS, multi_label_graph, named_graph
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from nagphormer import NodeClassifier, TrainConfig, UserError, from_scipy, hop_tokens, load_graph, random_split
from nagphormer.device import machine
from nagphormer.metrics import METRICS
from nagphormer.settings import field_help
from nagphormer.training.run_folder import RunFolder
from nagphormer.training.task import Task

PARAMETERS = [field.name for field in fields(TrainConfig)] + ["recipe", "verbose", "time_limit"]
FITTED = {"classes_", "config_", "model_", "history_", "splits_", "best_epoch_", "temperature_", "n_features_in_"}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    """These tests compare bits, so a GPU must not step in."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="module")
def graph():
    return named_graph()


@pytest.fixture(scope="module")
def fitted(graph):
    return NodeClassifier(**SETTINGS).fit(graph)


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "run")
    return tmp_path / "run"


def trained_on(graph, **changes):
    return NodeClassifier(**SETTINGS | changes).fit(graph)


def weights_of(classifier):
    return {name: tensor.numpy() for name, tensor in classifier.model_.state_dict().items()}


def same_weights(one, other):
    ours, theirs = weights_of(one), weights_of(other)
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


# the constructor's arguments


def test_every_setting_of_training_is_an_argument():
    assert sorted(inspect.signature(NodeClassifier).parameters) == sorted(PARAMETERS)
    assert sorted(NodeClassifier().get_params()) == sorted(PARAMETERS)


def test_the_constructor_stores_its_arguments_unchanged():
    given = {name: object() for name in PARAMETERS}
    classifier = NodeClassifier(**given)
    assert all(getattr(classifier, name) is value for name, value in given.items())
    assert vars(classifier) == given


def test_a_clone_has_the_same_parameters_and_is_not_fitted(fitted):
    assert clone(NodeClassifier(hops=2)).get_params() == NodeClassifier(hops=2).get_params()
    copy = clone(fitted)
    assert copy.get_params() == SETTINGS | {name: None for name in PARAMETERS if name not in SETTINGS}
    assert not FITTED & set(vars(copy))


def test_parameters_survive_a_round_trip():
    one = NodeClassifier(hops=2, readout="sum", lr=0.5, recipe="paper")
    other = NodeClassifier()
    assert other.set_params(**one.get_params()) is other
    assert other.get_params() == one.get_params()


def test_an_unknown_parameter_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"has no parameter 'hopps'\. Did you mean 'hops'\?"):
        NodeClassifier().set_params(hopps=2)


@pytest.mark.parametrize(("name", "ours"), [("learning_rate", "lr"), ("max_iter", "epochs"), ("randomState", None)])
def test_the_constructor_answers_an_unknown_argument_with_ours_of_that_meaning(name, ours):
    hint = rf"\. Did you mean '{ours}'\?" if ours else r"\."
    with pytest.raises(UserError, match=f"NodeClassifier has no parameter '{name}'{hint}$"):
        NodeClassifier(**{name: 1})
    with pytest.raises(TypeError):  # as Python's own
        NodeClassifier(**{name: 1})


def test_lines_are_printed_in_a_script_only_when_asked_for(graph, capsys):
    printed = {}
    for verbose in (None, False, True):
        classifier = NodeClassifier(**SETTINGS | {"verbose": verbose}).fit(graph)
        trained = capsys.readouterr()
        classifier.predict(graph)
        printed[verbose] = (*trained, *capsys.readouterr())
    assert printed[None] == printed[False] == ("", "", "", "")
    _, trained, _, predicted = printed[True]
    assert "hops" in trained
    assert "predicting 120 nodes: " in predicted
    assert "verbose" not in asdict(classifier.config_)
    NodeClassifier(**SETTINGS).fit(graph)
    assert capsys.readouterr().err == ""  # it was for that one


def test_the_representation_shows_what_was_given():
    assert repr(NodeClassifier()) == "NodeClassifier()"
    assert eval(repr(NodeClassifier(seed=0, readout="sum"))).get_params() == (
        NodeClassifier(readout="sum", seed=0).get_params()
    )
    assert "hops" not in repr(NodeClassifier(seed=0))


def test_every_argument_and_fitted_attribute_has_a_type_and_a_text():
    texts = field_help_of(NodeClassifier)
    hints = inspect.get_annotations(NodeClassifier)
    assert list(hints) == list(texts)
    assert set(hints) == {*PARAMETERS, *FITTED, "tokens_", "fitted_", "feature_names_in_"}
    assert list(inspect.signature(NodeClassifier).parameters) == [name for name in hints if not name.endswith("_")]
    settings = field_help(TrainConfig)
    assert {name: text for name, text in texts.items() if name in settings} == settings


def field_help_of(kind):
    """The docstring under every annotation of a class."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    return {
        line.target.id: text.value.value
        for line, text in pairwise(tree.body)
        if isinstance(line, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def test_scikit_learn_takes_it_for_a_classifier_that_is_fitted_or_not(fitted):
    assert is_classifier(NodeClassifier())
    tags = get_tags(NodeClassifier())
    assert (tags.requires_fit, tags.classifier_tags.multi_label, tags.input_tags.two_d_array) == (True, True, False)
    check_is_fitted(fitted)
    check_is_fitted(fitted, "classes_")
    with pytest.raises(NotFittedError):
        check_is_fitted(NodeClassifier())


# fitting


def test_fitted_attributes_end_in_an_underscore_and_exist_only_after_fit(graph, fitted):
    fresh = NodeClassifier(**SETTINGS)
    assert not FITTED & set(dir(fresh))
    learned = {name for name in vars(fitted) if not name.startswith("_")} - set(PARAMETERS)
    assert learned >= FITTED
    assert all(name.endswith("_") for name in learned)
    assert fitted.classes_.tolist() == ["ash", "birch", "cedar"]
    assert fitted.config_ == replace(TrainConfig(**SETTINGS), project_first="never")
    assert [record["epoch"] for record in fitted.history_] == [1, 2, 3, 4]
    assert 1 <= fitted.best_epoch_ <= 4
    assert all(np.array_equal(fitted.splits_[split], graph.splits[split]) for split in ("train", "val", "test"))


USES = {
    "predict": lambda classifier, graph: classifier.predict(graph),
    "predict_proba": lambda classifier, graph: classifier.predict_proba(graph),
    "embed": lambda classifier, graph: classifier.embed(graph),
    "hop_attention": lambda classifier, graph: classifier.hop_attention(graph),
    "score": lambda classifier, graph: classifier.score(graph),
    "save": lambda classifier, graph: classifier.save("run"),
}


@pytest.mark.parametrize("use", USES)
def test_nothing_works_before_fit(use, graph, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in (UserError, NotFittedError):
        with pytest.raises(kind, match="not fitted yet: call fit"):
            USES[use](NodeClassifier(), graph)
    assert not list(tmp_path.iterdir())


def test_an_error_before_fit_goes_from_one_process_to_another_as_what_it_is():
    with pytest.raises(UserError) as caught:
        NodeClassifier()._fitted()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, NotFittedError)
    assert isinstance(copy, UserError)
    assert str(copy) == str(caught.value)


@pytest.mark.slow
def test_scikit_learn_is_not_loaded_for_the_sake_of_an_error():
    code = """
import sys
from nagphormer import NodeClassifier, UserError
try:
    NodeClassifier().save("run")
except UserError as error:
    print(type(error).__name__, "sklearn" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "NotFitted False\n"


def test_fit_takes_no_labels_but_those_of_the_graph(graph, fitted):
    assert same_weights(NodeClassifier(**SETTINGS).fit(graph, None), fitted)
    with pytest.raises(UserError, match="the graph holds the labels"):
        NodeClassifier(**SETTINGS).fit(graph, graph.labels)


def test_features_are_counted_and_named_where_the_graph_names_them(graph, fitted, saved):
    names = tuple(f"column {number}" for number in range(8))
    named = trained_on(replace(graph, feature_names=names), epochs=1)
    assert named.n_features_in_ == fitted.n_features_in_ == NodeClassifier.load(saved).n_features_in_ == 8
    assert named.feature_names_in_.tolist() == list(names)
    assert trained_on(graph, epochs=1, encoding_dim=2).n_features_in_ == 8
    named.save(saved, overwrite=True)
    assert NodeClassifier.load(saved).feature_names_in_.tolist() == list(names)
    assert not hasattr(fitted, "feature_names_in_")
    assert not hasattr(named.fit(graph), "feature_names_in_")


def test_fit_gives_the_classifier_itself_and_leaves_its_parameters_alone(graph):
    classifier = NodeClassifier(**SETTINGS | {"precision": "auto", "epochs": 1})
    before = classifier.get_params()
    assert classifier.fit(graph) is classifier
    assert classifier.get_params() == before


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(graph, fitted):
    assert same_weights(fitted, trained_on(graph))
    assert not same_weights(fitted, trained_on(graph, seed=1))


def test_torch_keeps_its_own_random_state(graph):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained_on(graph, epochs=1)
    assert torch.equal(torch.rand(3), expected)


def test_fitting_again_starts_afresh(graph, fitted):
    again = trained_on(named_graph(seed=1, num_classes=4)).fit(graph)
    assert same_weights(again, fitted)
    assert np.array_equal(again.predict_proba(graph), fitted.predict_proba(graph))


def test_a_graph_without_splits_gets_a_random_one_and_a_warning(fitted):
    graph = named_graph(split=False)
    with pytest.warns(UserWarning, match=r"no splits: .* 60 % train, 20 % validate .* seed 7"):
        classifier = trained_on(graph, seed=7)
    drawn = random_split(graph, seed=7).splits
    assert all(np.array_equal(classifier.splits_[split], drawn[split]) for split in ("train", "val", "test"))
    assert classifier.score(graph) == classifier.score(graph.with_splits(**drawn))


@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_labels_of_the_test_nodes_are_never_read(class_weights, graph):
    labels = graph.labels.copy()
    labels[graph.splits["test"]] = (labels[graph.splits["test"]] + 1) % 3
    changed = replace(graph, labels=labels)
    one, other = (trained_on(each, class_weights=class_weights) for each in (graph, changed))
    assert one.history_[0]["train_loss"] == other.history_[0]["train_loss"]
    assert same_weights(one, other)
    assert one.score(graph) != one.score(changed)


def test_labels_of_the_training_nodes_are_read(graph, fitted):
    labels = graph.labels.copy()
    labels[graph.splits["train"]] = (labels[graph.splits["train"]] + 1) % 3
    assert not same_weights(fitted, trained_on(replace(graph, labels=labels)))


def test_arguments_win_over_the_recipe_and_the_recipe_over_the_defaults(graph, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(yaml.safe_dump(SETTINGS | {"hops": 1, "clip_norm": 7, "epochs": 1}))
    assert TrainConfig().clip_norm != 7
    config = NodeClassifier(recipe=str(recipe), hops=0, dropout=0).fit(graph).config_
    assert (config.hops, config.dropout, config.clip_norm, config.hidden_dim) == (0, 0, 7, 16)
    assert config.class_weights == TrainConfig().class_weights


def test_the_recipe_is_picked_by_the_graphs_name(graph):
    small = {name: SETTINGS[name] for name in ("hidden_dim", "epochs", "device")}
    citeseer = NodeClassifier(recipe="paper", **small, encoding_dim=0).fit(graph.with_name("citeseer"))
    assert (citeseer.config_.hops, citeseer.config_.dropout) == (7, 0.3)
    unknown = NodeClassifier(recipe="paper", **small, encoding_dim=0).fit(graph)
    assert (unknown.config_.hops, unknown.config_.dropout) == (3, 0.1)


def test_a_wrong_setting_is_refused_at_fit(graph):
    with pytest.raises(UserError, match=r"unknown readout 'atention': .* Did you mean 'attention'\?"):
        NodeClassifier(readout="atention").fit(graph)
    with pytest.raises(UserError, match="hidden_dim=16 is not a multiple of num_heads=3"):
        NodeClassifier(hidden_dim=16, num_heads=3).fit(graph)


def test_a_token_store_gives_the_same_model_as_tokens_made_on_the_way(graph, fitted, tmp_path):
    store = hop_tokens(graph, hops=2, out=tmp_path / "tokens")
    classifier = NodeClassifier(**SETTINGS).fit(graph, tokens=store)
    assert same_weights(classifier, fitted)
    assert np.array_equal(fitted.predict_proba(graph, tokens=store), fitted.predict_proba(graph))


def test_a_token_store_sets_its_own_hops_and_what_was_given_must_agree(graph):
    store = hop_tokens(graph, hops=1)
    settings = SETTINGS | {"epochs": 1}
    with pytest.raises(UserError, match=r"hops=2 was asked for, but the tokens have 1"):
        NodeClassifier(**settings).fit(graph, tokens=store)
    del settings["hops"]
    assert NodeClassifier(**settings).fit(graph, tokens=store).config_.hops == 1


def test_tokens_of_another_graph_or_of_other_hops_are_refused(graph, fitted):
    with pytest.raises(UserError, match="tokens of another graph"):
        NodeClassifier(**SETTINGS).fit(graph, tokens=hop_tokens(named_graph(seed=1), hops=2))
    with pytest.raises(UserError, match="hops=1, not 2"):
        fitted.predict(graph, tokens=hop_tokens(graph, hops=1))


def test_a_loss_that_is_no_number_is_an_error_and_the_best_weights_are_kept(graph, monkeypatch):
    calls, loss = [], Task.loss
    clean = trained_on(graph, epochs=2)

    def spoiled(self, logits, nodes, *smoothing):
        calls.append(len(nodes))
        return loss(self, logits, nodes, *smoothing) * (float("nan") if len(calls) > 10 else 1)  # 5 calls an epoch

    monkeypatch.setattr(Task, "loss", spoiled)
    classifier = NodeClassifier(**SETTINGS)
    with pytest.raises(UserError, match=r"the loss became nan in epoch 3, update 1 of 2: .* lower lr") as error:
        classifier.fit(graph)
    assert f"the weights of epoch {clean.best_epoch_} are kept" in str(error.value)
    assert same_weights(classifier, clean)


# predicting


def test_predictions_are_class_names_where_the_graph_has_them(graph, fitted):
    predicted = fitted.predict(graph)
    assert predicted.shape == (120,)
    assert set(predicted) <= {"ash", "birch", "cedar"}
    unnamed = replace(graph, class_names=None)
    numbers = trained_on(unnamed)
    assert numbers.classes_.tolist() == [0, 1, 2]
    assert np.array_equal(fitted.classes_[numbers.predict(unnamed)], predicted)


def test_columns_follow_the_classes(graph, fitted):
    probability = fitted.predict_proba(graph)
    assert probability.shape == (120, 3)
    assert np.array_equal(fitted.classes_[probability.argmax(axis=1)], fitted.predict(graph))
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert (probability >= 0).all()


def test_it_learns_something(graph):
    assert trained_on(graph, epochs=30).score(graph) > 0.7  # a third by guessing


def test_nodes_can_be_asked_for_by_position_mask_slice_and_id(graph, fitted):
    everything = fitted.predict_proba(graph)
    mask = np.zeros(120, bool)
    mask[[3, 70]] = True
    np.testing.assert_allclose(fitted.predict_proba(graph, nodes=mask), everything[[3, 70]], rtol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(graph, nodes=[70, 3, 3]), everything[[70, 3, 3]], rtol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(graph, nodes=slice(5, 9)), everything[5:9], rtol=1e-5)
    np.testing.assert_allclose(
        fitted.predict_proba(graph, node_ids=["node-70", "node-3"]), everything[[70, 3]], rtol=1e-5
    )
    assert fitted.predict(graph, nodes=5).tolist() == [fitted.predict(graph)[5]]
    with pytest.raises(UserError, match="not both"):
        fitted.predict(graph, nodes=[0], node_ids=["node-0"])


def test_nodes_can_be_asked_for_by_split(graph, fitted):
    for split in ("train", "val", "test"):
        nodes = graph.splits[split]
        assert fitted.predict(graph, split=split).tolist() == fitted.predict(graph, nodes).tolist()
        assert np.array_equal(fitted.predict_proba(graph, split=split), fitted.predict_proba(graph, nodes))
    unknown = np.where(np.isin(np.arange(graph.num_nodes), graph.splits["test"][1:]), -1, graph.labels)
    tomorrow = from_scipy(graph.adjacency(), graph.features, unknown, graph.splits)
    assert fitted.predict(tomorrow, split="test").tolist() == fitted.predict(graph, split="test").tolist()
    with pytest.raises(UserError, match="give nodes, node_ids or split, one of them"):
        fitted.predict(graph, [0], split="test")


@pytest.mark.parametrize("kind", [True, "pandas", "polars", "arrow"])
def test_predictions_come_as_a_frame_with_ids_and_probabilities(kind, graph, fitted):
    nodes = [3, 0, 5]
    frame = fitted.predict(graph, nodes, as_frame=kind)
    assert type(frame).__module__.partition(".")[0] == {True: "pandas", "arrow": "pyarrow"}.get(kind, kind)
    columns = {name: np.array(frame[name]) for name in getattr(frame, "column_names", None) or list(frame.columns)}
    assert list(columns) == ["node_id", "prediction", "probability", "p_ash", "p_birch", "p_cedar"]
    assert columns["node_id"].tolist() == ["node-3", "node-0", "node-5"]
    assert columns["prediction"].tolist() == fitted.predict(graph, nodes).tolist()
    probability = fitted.predict_proba(graph, nodes)
    assert np.array_equal(np.stack([columns[f"p_{name}"] for name in fitted.classes_], axis=1), probability)
    assert np.array_equal(columns["probability"], probability.max(axis=1))


def test_a_kind_of_frame_that_there_is_not_is_refused_before_any_work(graph, fitted, monkeypatch):
    monkeypatch.setattr(NodeClassifier, "_infer", None)
    with pytest.raises(UserError, match="unknown kind of frame 'panda'"):
        fitted.predict(graph, as_frame="panda")


def test_no_nodes_give_no_rows_of_the_right_width(graph, fitted):
    assert fitted.predict(graph, nodes=[]).shape == (0,)
    assert fitted.predict_proba(graph, nodes=[]).shape == (0, 3)
    assert fitted.embed(graph, node_ids=[]).shape == (0, 16)
    assert fitted.hop_attention(graph, nodes=np.zeros(120, bool)).shape == (0, 2)


def test_embeddings_are_what_the_head_reads(graph):
    alone = trained_on(graph, linear=False)
    embedded = alone.embed(graph)
    assert embedded.shape == (120, 16)
    with torch.no_grad():
        probability = (alone.model_.head(torch.from_numpy(embedded)) / alone.temperature_).softmax(dim=1).numpy()
    np.testing.assert_allclose(probability, alone.predict_proba(graph), rtol=1e-5)


def test_hop_attention_shares_one_among_the_hops(graph, fitted):
    attention = fitted.hop_attention(graph, nodes=[0, 1, 2])
    assert attention.shape == (3, 2)
    np.testing.assert_allclose(attention.sum(axis=1), 1, rtol=1e-5)
    with torch.no_grad():
        tokens = torch.from_numpy(hop_tokens(graph, hops=2)[[0, 1, 2]])
        _, expected = fitted.model_(tokens, return_attention=True)
    np.testing.assert_allclose(attention, expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("readout", ["sum", "self"])
def test_readouts_that_weigh_no_hops_say_so(readout, graph):
    with pytest.raises(UserError, match=f"readout='{readout}' weighs no hops"):
        trained_on(graph, readout=readout, epochs=1).hop_attention(graph)


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("metric", METRICS)
def test_score_is_the_metric_on_the_split(metric, split, graph, fitted):
    nodes = graph.splits[split]
    expected = METRICS[metric](graph.labels[nodes], fitted.predict_proba(graph, nodes))
    assert fitted.score(graph, split, metric) == expected


def test_score_is_the_accuracy_on_the_test_nodes_unless_told_otherwise(graph, fitted):
    nodes = graph.splits["test"]
    truth = np.array(graph.class_names)[graph.labels[nodes]]
    assert fitted.score(graph) == np.mean(fitted.predict(graph, nodes) == truth)


def test_unknown_splits_and_metrics_are_refused(graph, fitted):
    with pytest.raises(UserError, match="unknown split 'tests'"):
        fitted.score(graph, "tests")
    with pytest.raises(UserError, match=r"unknown metric 'acuracy': .* Did you mean 'accuracy'\?"):
        fitted.score(graph, metric="acuracy")
    with pytest.raises(UserError, match="the split 'test' is empty"):
        fitted.score(graph.with_splits(train=[0], val=[1]))


def test_validation_scores_are_those_of_the_best_epoch(graph, fitted):
    best = fitted.history_[fitted.best_epoch_ - 1]
    assert fitted.score(graph, "val") == pytest.approx(best["val_accuracy"])
    assert fitted.score(graph, "val", "log_loss") < best["val_loss"]  # which is that of scores before calibration


def test_going_to_another_graph_and_back_changes_nothing(graph, fitted):
    before = fitted.predict_proba(graph)
    there = fitted.predict_proba(named_graph(seed=1))
    assert not np.array_equal(there, before)
    assert np.array_equal(fitted.predict_proba(graph), before)


def test_a_graph_whose_eigenvectors_do_not_agree_is_refused_and_one_without_an_encoding_is_not(graph, fitted):
    other = named_graph(seed=1)
    fitted.predict(other)
    encoded = trained_on(graph, encoding_dim=2, epochs=1)
    encoded.predict(graph.with_splits())
    with pytest.raises(
        UserError, match=r"agree with those of training by -?0\.\d\d on 120 .*, below 0.5: .* encoding_dim=0"
    ):
        encoded.predict(other)


def test_a_graph_of_another_width_is_refused(fitted):
    with pytest.raises(UserError, match="trained on 8 features, but this graph has 9"):
        fitted.predict(named_graph(num_features=9))


def test_a_class_that_was_never_seen_is_refused_in_a_score_but_not_in_a_prediction(fitted):
    other = named_graph(num_classes=4)
    assert fitted.predict(other).shape == (120,)
    with pytest.raises(UserError, match="have class 'date', which the model has never seen: it knows ash, birch"):
        fitted.score(other)


def test_class_names_in_another_order_are_matched_by_name(graph, fitted):
    turned = replace(graph, class_names=("cedar", "ash", "birch"), labels=(graph.labels + 1) % 3)
    assert fitted.score(turned, metric="log_loss") == fitted.score(graph, metric="log_loss")


# several labels per node


def test_a_multi_label_graph_goes_through_all_of_it(tmp_path):
    graph = multi_label_graph()
    classifier = trained_on(graph, epochs=10)
    probability, predicted = classifier.predict_proba(graph), classifier.predict(graph)
    assert predicted.shape == probability.shape == (120, 3)
    assert np.array_equal(predicted, (probability > 0.5).astype(int))
    assert (abs(probability.sum(axis=1) - 1) > 0.01).any()  # each label on its own, not shares of one
    assert all("val_micro_f1" in record for record in classifier.history_)
    for metric in METRICS:
        assert 0 <= classifier.score(graph, metric=metric) < 2
    assert classifier.score(graph, metric="micro_f1") > 0.5
    classifier.save(tmp_path / "run")
    assert np.array_equal(NodeClassifier.load(tmp_path / "run").predict(graph), predicted)


def test_several_labels_and_one_label_are_not_compared(fitted):
    with pytest.raises(UserError, match="trained on one label per node, but this graph has several"):
        fitted.score(multi_label_graph())


# saving and loading


@pytest.mark.slow
def test_what_was_loaded_in_a_new_process_predicts_the_same_bits(tmp_path):
    graphs = {"never": named_graph(), "always": named_graph(sparse=True)}
    expected = {}
    for way, graph in graphs.items():
        graph.save(tmp_path / f"graph-{way}")
        classifier = trained_on(graph, encoding_dim=2, project_first=way)
        assert classifier.config_.project_first == way
        classifier.save(tmp_path / way)
        expected[way] = classifier.predict_proba(graph)
    code = """
import numpy as np
from nagphormer import NodeClassifier, load_graph
found = {way: NodeClassifier.load(way).predict_proba(load_graph(f"graph-{way}")) for way in ("never", "always")}
np.savez("found.npz", **found)
"""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], cwd=tmp_path, check=True, env=environment)
    found = np.load(tmp_path / "found.npz")
    assert np.array_equal(found["never"], expected["never"])
    assert np.array_equal(found["always"], expected["always"])


def test_a_loaded_classifier_has_all_that_a_fitted_one_has(graph, fitted, saved):
    loaded = NodeClassifier.load(saved)
    assert same_weights(loaded, fitted)
    assert loaded.config_ == fitted.config_
    assert loaded.history_ == fitted.history_
    assert loaded.best_epoch_ == fitted.best_epoch_
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    assert all(np.array_equal(loaded.splits_[split], fitted.splits_[split]) for split in ("train", "val", "test"))
    assert same_weights(clone(loaded).fit(graph), fitted)


def test_a_run_folder_holds_no_pickle(saved):
    names = sorted(path.name for path in saved.iterdir())
    arrays = [f"{name}.safetensors" for name in ("model", "splits")]
    assert names == sorted(["config.yaml", "manifest.json", "metrics.jsonl", *arrays])
    for path in saved.iterdir():
        with pytest.raises(Exception), open(path, "rb") as file:  # noqa: B017, PT011 (any will do)
            pickle.load(file)
        if path.suffix == ".safetensors":
            header = path.read_bytes()
            assert header[8 : 8 + int.from_bytes(header[:8], "little")].decode().startswith("{")
        else:
            path.read_text(encoding="utf-8")


def test_settings_may_be_numbers_of_numpy(graph, tmp_path):
    trained_on(graph, hops=np.int64(1), lr=np.float32(0.01), epochs=1).save(tmp_path / "run")
    assert NodeClassifier.load(tmp_path / "run").config_.hops == 1


def test_saving_over_anything_is_refused(fitted, saved, tmp_path):
    before = (saved / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match="holds a run already"):
        fitted.save(saved)
    assert (saved / "model.safetensors").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(UserError, match="mine is not empty"):
        fitted.save(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_saving_over_a_run_replaces_it_whole_or_not_at_all(graph, fitted, saved, tmp_path, monkeypatch):
    (saved / "predictions.parquet").write_text("of the model before")
    other = NodeClassifier(**SETTINGS | {"seed": 1, "epochs": 1}).fit(graph)
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with monkeypatch.context() as broken:
        broken.setattr(RunFolder, "finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            other.save(saved, overwrite=True)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    other.save(saved, overwrite=True)
    assert same_weights(NodeClassifier.load(saved), other)
    assert sorted(path.name for path in saved.iterdir()) == sorted(set(before) - {"predictions.parquet"})
    assert [path.name for path in tmp_path.iterdir()] == [saved.name]


def test_saving_over_what_is_no_run_is_refused(fitted, graph, tmp_path):
    fitted.save(tmp_path / "new", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    graph.save(tmp_path / "graph")
    (tmp_path / "file").touch()
    for name in ("mine", "graph", "file"):
        with pytest.raises(UserError, match=f"{name} is not a run folder"):
            fitted.save(tmp_path / name, overwrite=True)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_a_folder_that_is_no_run_is_refused(graph, tmp_path):
    with pytest.raises(UserError, match="nowhere is not a run folder"):
        NodeClassifier.load(tmp_path / "nowhere")
    graph.save(tmp_path / "graph")
    with pytest.raises(UserError, match="graph is not a run folder"):
        NodeClassifier.load(tmp_path / "graph")
    hop_tokens(graph, hops=1, out=tmp_path / "tokens")
    with pytest.raises(UserError, match="tokens is not a run folder"):
        NodeClassifier.load(tmp_path / "tokens")


def test_a_run_that_has_not_ended_is_refused_and_how_to_go_on_is_said(saved):
    (saved / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has not ended: go on with nagphormer train .* --resume"):
        NodeClassifier.load(saved)


@pytest.mark.parametrize("key", ["input_dim", "num_classes"])
def test_weights_that_do_not_fit_the_manifest_are_refused(key, saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps(manifest | {key: manifest[key] + 1}))
    with pytest.raises(UserError, match=r"model.safetensors does not fit .* from the same run"):
        NodeClassifier.load(saved)


@pytest.mark.parametrize(("key", "value"), [("hidden_dim", 32), ("num_layers", 2), ("num_layers", 0)])
def test_weights_that_do_not_fit_the_settings_are_refused(key, value, saved):
    settings = yaml.safe_load((saved / "config.yaml").read_text())
    (saved / "config.yaml").write_text(yaml.safe_dump(settings | {key: value}))
    with pytest.raises(UserError, match=r"model.safetensors does not fit .* from the same run"):
        NodeClassifier.load(saved)


@pytest.mark.parametrize("name", ["model.safetensors", "splits.safetensors"])
@pytest.mark.parametrize("kept", [0, 4, 200, -1])
def test_a_file_cut_short_is_refused(name, kept, saved):
    (saved / name).write_bytes((saved / name).read_bytes()[:kept])
    with pytest.raises(UserError, match=f"{name} is .*damaged"):
        NodeClassifier.load(saved)


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json", "model.safetensors"])
def test_a_missing_file_is_refused(name, saved):
    (saved / name).unlink()
    with pytest.raises(UserError, match="has not ended" if name == "model.safetensors" else name):
        NodeClassifier.load(saved)


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_the_trap_works(tmp_path):
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("dump", [pickle.dump, torch.save], ids=["pickle", "torch"])
@pytest.mark.parametrize("name", ["model.safetensors", "splits.safetensors"])
def test_a_planted_pickle_is_refused_and_not_run(name, dump, saved, tmp_path):
    with open(saved / name, "wb") as file:
        dump(Trap(tmp_path / "sprung"), file)
    with pytest.raises(UserError, match=f"{name} is .*damaged"):
        NodeClassifier.load(saved)
    assert not (tmp_path / "sprung").exists()


def test_yaml_that_would_run_code_is_refused_and_not_run(saved, tmp_path):
    with open(saved / "config.yaml", "a") as file:
        file.write(f"readout: !!python/object/apply:os.system ['touch {tmp_path / 'sprung'}']\n")
    with pytest.raises(UserError, match=r"config.yaml is not YAML: .*python/object/apply:os.system"):
        NodeClassifier.load(saved)
    assert not (tmp_path / "sprung").exists()


def test_a_graph_folder_gives_what_the_graph_in_memory_gave(graph, fitted, tmp_path):
    graph.save(tmp_path / "graph")
    assert np.array_equal(fitted.predict_proba(load_graph(tmp_path / "graph")), fitted.predict_proba(graph))


def test_a_graph_without_features_is_classified_by_its_structure(graph, tmp_path):
    bare = random_split(from_scipy(graph.adjacency(), None, graph.labels))
    classifier = trained_on(bare, encoding_dim=2)
    classifier.save(tmp_path / "run")
    assert np.array_equal(NodeClassifier.load(tmp_path / "run").predict_proba(bare), classifier.predict_proba(bare))


def test_what_was_trained_on_a_gpu_is_loaded_where_there_is_none(graph, fitted, saved):
    settings = yaml.safe_load((saved / "config.yaml").read_text())
    (saved / "config.yaml").write_text(yaml.safe_dump(settings | {"device": "cuda"}))
    assert np.array_equal(NodeClassifier.load(saved).predict_proba(graph), fitted.predict_proba(graph))


def test_what_was_trained_on_sparse_features_can_be_fitted_to_dense_ones_after_loading(graph, tmp_path, monkeypatch):
    monkeypatch.setattr("nagphormer.training.plan.projecting_pays", lambda *_: True)
    first = NodeClassifier(**SETTINGS | {"epochs": 1}).fit(named_graph(sparse=True))
    assert first.config_.project_first == "always"
    first.save(tmp_path / "run")
    loaded = NodeClassifier.load(tmp_path / "run")
    assert loaded.project_first == "auto"
    assert loaded.fit(graph).config_.project_first == "never"


def test_a_loaded_estimator_has_the_parameters_that_were_given_and_the_settings_that_were_decided(graph, tmp_path):
    given = SETTINGS | {"precision": "auto", "feature_dropout": None, "device": None, "epochs": 1}
    first = NodeClassifier(**given).fit(graph)
    first.save(tmp_path / "run")
    loaded = NodeClassifier.load(tmp_path / "run")
    assert {name: clone(loaded).get_params()[name] for name in given} == given
    assert loaded.config_ == first.config_
    assert loaded.config_.precision in ("fp32", "bf16")


def test_predictions_are_made_on_the_device_asked_for(graph, fitted, monkeypatch):
    asked = []
    monkeypatch.setattr("nagphormer.estimator.machine", lambda device: asked.append(device) or machine("cpu"))
    fitted.predict(graph, tokens=hop_tokens(graph, 2, device="cpu"))
    assert asked == ["cpu"]
