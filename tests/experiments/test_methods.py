from experiments.data import AT_HAND
from experiments.items import OWN
from experiments.methods import METHODS
from nagphormer import TrainConfig
from nagphormer.settings import resolve


def test_settings_of_our_own_are_those_of_the_recipe_they_name():
    resolved = METHODS["nagphormer"].resolved
    assert resolved("synthetic-reddit", {"recipe": "paper-reddit"}) == resolved("reddit", {"recipe": "paper-reddit"})
    assert resolved("synthetic-reddit", {"recipe": "paper-reddit"}) != resolved("synthetic-reddit", {})


def test_every_method_is_tuned_by_its_own_settings():
    assert METHODS["tuned_sage"].settings("physics")[0]["norm"] == "batch"
    assert "norm" not in METHODS["tuned_gcn"].settings("physics")[0]


def test_settings_are_the_same_however_a_file_writes_them():
    ours = METHODS["nagphormer"]
    wanted = ours.resolved("photo", {})
    assert ours.same(dict(reversed(wanted.items())) | {"clip_norm": 0, "lr": str(wanted["lr"])}, wanted)
    assert not ours.same(wanted | {"hops": 99}, wanted)


def test_the_estimator_is_measured_with_the_budget_it_has_anyway():
    for config in (TrainConfig(), *(resolve("paper", dataset, {}) for dataset in AT_HAND)):
        assert (config.epochs, config.patience) == (OWN.epochs, OWN.patience)


def test_on_the_fixed_split_a_method_has_the_settings_of_its_graph():
    for name, method in METHODS.items():
        assert method.settings("photo-fixed") == method.settings("photo"), name
        assert method.resolved("photo-fixed", {}) == method.resolved("photo", {}), name
    assert METHODS["tuned_gcn"].settings("photo-fixed")[0]["num_layers"] == 6
    assert METHODS["nagphormer"].resolved("photo-fixed", {}) != METHODS["nagphormer"].resolved("cs-fixed", {})
