from experiments.methods import METHODS


def test_settings_of_our_own_are_those_of_the_recipe_they_name():
    resolved = METHODS["nagphormer"].resolved
    assert resolved("synthetic-reddit", {"recipe": "paper-reddit"}) == resolved("reddit", {"recipe": "paper-reddit"})
    assert resolved("synthetic-reddit", {"recipe": "paper-reddit"}) != resolved("synthetic-reddit", {})


def test_every_method_is_tuned_by_its_own_settings():
    assert METHODS["tuned_sage"].settings("physics")[0]["norm"] == "batch"
    assert "norm" not in METHODS["tuned_gcn"].settings("physics")[0]
