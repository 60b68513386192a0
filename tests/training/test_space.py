from dataclasses import replace

import pytest

from nagphormer import TrainConfig, UserError
from nagphormer.settings import resolve
from nagphormer.training.space import SPACES, Between, OneOf, Space


def ends(choice):
    return choice.values if isinstance(choice, OneOf) else (choice.low, choice.high)


@pytest.mark.parametrize("name", SPACES)
def test_every_value_of_a_space_is_one_that_a_setting_may_have(name):
    base = resolve(SPACES[name].recipe, "cora", {})
    for setting, choice in SPACES[name].choices.items():
        for value in ends(choice):
            assert getattr(replace(base, **{setting: value}), setting) == value


def test_the_papers_grid_is_that_of_its_text():
    paper = SPACES["paper"]
    found = {
        name: list(range(choice.low, choice.high + 1)) if isinstance(choice, Between) else set(choice.values)
        for name, choice in paper.choices.items()
    }
    assert found == {
        "num_layers": [1, 2, 3, 4, 5],
        "hidden_dim": {128, 256, 512},
        "hops": list(range(2, 21)),
        "lr": {1e-3, 5e-3, 1e-4},
        "weight_decay": {1e-4, 5e-4, 1e-5},
        "dropout": {0.1, 0.3, 0.5},
    }
    base = resolve(paper.recipe, "cora", {})
    assert (base.batch_size, base.patience, base.linear) == (2000, 50, False)


def test_the_defaults_lie_in_the_wide_space():
    decided = replace(TrainConfig(), feature_scaling="none", feature_dropout=0.4)
    wide = SPACES["wide"]
    assert wide.among(vars(decided)).keys() == wide.choices.keys()


def test_what_is_given_is_not_tried():
    space = SPACES["paper"].without(["hops", "epochs"])
    assert "hops" not in space.choices
    assert len(space.choices) == 5
    with pytest.raises(
        UserError, match="all settings of the space 'paper' are given: leave out one of num_layers, hid"
    ):
        SPACES["paper"].without(SPACES["paper"].choices)


def test_a_value_outside_a_choice_is_not_taken_for_a_start():
    space = Space("wide", None, {"hops": OneOf((1, 2)), "dropout": Between(0.1, 0.2), "feature_dropout": Between(0, 1)})
    assert space.among({"hops": 3, "dropout": 0.1, "feature_dropout": None}) == {"dropout": 0.1}
