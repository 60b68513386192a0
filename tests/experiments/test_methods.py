import pytest

from experiments import methods
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
    for config in (resolve("transformer", None, {}), *(resolve("paper", dataset, {}) for dataset in AT_HAND)):
        assert (config.epochs, config.patience) == (OWN.epochs, OWN.patience)


def test_on_the_fixed_split_a_method_has_the_settings_of_its_graph():
    for name, method in METHODS.items():
        assert method.settings("photo-fixed") == method.settings("photo"), name
        assert method.resolved("photo-fixed", {}) == method.resolved("photo", {}), name
    assert METHODS["tuned_gcn"].settings("photo-fixed")[0]["num_layers"] == 6
    assert METHODS["nagphormer"].resolved("photo-fixed", {}) != METHODS["nagphormer"].resolved("cs-fixed", {})


def test_what_trains_by_itself_is_another_cell_with_other_epochs():
    default = METHODS["default"]
    settings = default.resolved("photo", {})
    assert (settings["epochs"], settings["patience"]) == (TrainConfig().epochs, TrainConfig().patience)
    assert default.same(settings, settings | {"clip_norm": 0})
    assert not default.same(settings | {"epochs": 10}, settings)
    assert default.resolved("minesweeper", {"monitor": "roc_auc"})["monitor"] == "roc_auc"
    assert "epochs" not in METHODS["transformer"].resolved("photo", {})


@pytest.fixture
def best(monkeypatch, tmp_path):
    """The file of a recipe of two members."""
    monkeypatch.setattr(methods, "RECIPES", tmp_path)
    path = tmp_path / "best.yaml"
    path.write_text("members:\n  near: {hops: 2}\n  far: {hops: 10, lr: 1e-3}\n")
    return path


def test_a_portfolio_is_known_by_all_its_members(best):
    portfolio = METHODS["best"]
    before = portfolio.resolved("photo", {})
    assert before == {"members": {"near": {"hops": 2}, "far": {"hops": 10, "lr": "1e-3"}}}
    assert portfolio.same(before, portfolio.resolved("cs-fixed", {}))
    assert not portfolio.same(before, portfolio.resolved("minesweeper", {"monitor": "roc_auc"}))
    best.write_text(best.read_text().replace("hops: 10", "hops: 12"))
    assert not portfolio.same(before, portfolio.resolved("photo", {}))


def test_a_recipe_without_a_file_says_nothing(best):
    best.unlink()
    assert METHODS["best"].resolved("photo", {}) == {}
