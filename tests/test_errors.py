import pytest

from nagphormer.errors import OTHER_NAMES, nearest
from nagphormer.settings import TrainConfig, check_settings

OURS = list(TrainConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("word", "known", "named"),
    [
        ("hopps", OURS, "hops"),
        ("Pubmet", ["cora", "pubmed"], "pubmed"),
        ("learning_rate", OURS, "lr"),
        ("max_iter", OURS, "epochs"),
        ("random_state", OURS, "seed"),
        ("n_layers", OURS, "num_layers"),
        ("hidden_size", OURS, "hidden_dim"),
        ("--learning-rate=1", ["--lr", "--hops"], "--lr"),
        ("--n-jobs", ["--threads"], "--threads"),
    ],
)
def test_the_nearest_word_is_named_or_ours_of_the_same_meaning(word, known, named):
    assert nearest(word, known) == f" Did you mean {named!r}?"


def test_nothing_is_named_where_nothing_is_near():
    assert nearest("nonsense", OURS) == ""
    assert nearest("learning_rate", ["pubmed"]) == ""  # there is no lr among them


def test_a_name_of_ours_is_no_other_name():
    assert set(OURS).isdisjoint(OTHER_NAMES)
    assert set(OTHER_NAMES.values()) <= {*OURS, "threads", "out", "verbose"}


def test_a_settings_file_with_the_name_of_another_library_is_told_ours():
    with pytest.raises(ValueError, match=r"mine.yaml has an unknown setting 'n_epochs'. Did you mean 'epochs'\?"):
        check_settings(TrainConfig, {"n_epochs": 3}, "mine.yaml")
