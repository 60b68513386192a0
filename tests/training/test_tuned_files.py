import csv
import re
from dataclasses import fields, replace

import pytest
import yaml
from small import class_graph
from tuning import START, complete, study_in

from nagphormer import TrainConfig, __version__
from nagphormer.errors import MissingExtra
from nagphormer.settings import resolve
from nagphormer.training.tuned import write_tuned

pytest.importorskip("optuna", reason="needs the extra 'tune'")
pytest.importorskip("matplotlib", reason="needs the extra 'tune'")
pytestmark = pytest.mark.usefixtures("hasty")
GRAPH = class_graph()
RESULTS = [
    complete(0.5),
    complete(0.75, 0.61234),
    complete(0.6, state="pruned"),
    complete(None, None, state="failed", reason="the loss became nan, alas"),
    complete(0.7),
]


@pytest.fixture
def written(tmp_path):
    """A folder with the files of five trials, and their study."""
    with study_in(tmp_path, GRAPH, class_weights="balanced", seed=3, device="cpu") as study:
        for result in RESULTS:
            study.end(study.begin(9), result)
        write_tuned(tmp_path, study, "accuracy", "small")
    return tmp_path, study


def test_the_recipe_gives_the_settings_of_the_winner(written):
    folder, study = written
    best = study.ended[1]
    found = resolve(str(folder / "best.yaml"), None, {})
    assert found == replace(study.about.base, **best.tried)
    assert (found.class_weights, found.seed, found.device) == ("balanced", 3, None)
    content = yaml.safe_load((folder / "best.yaml").read_text())
    assert (content["version"], content["expected"]) == (__version__, {"val_accuracy": 0.75})
    assert (folder / "best.yaml").read_text().startswith("# nagphormer tune: the best of 5 trials on small, trial 2\n")


def test_the_recipe_names_what_was_tried_and_what_is_not_the_default(written):
    folder, study = written
    content = yaml.safe_load((folder / "best.yaml").read_text())
    named = content.keys() - {"version", "expected"}
    default = {each.name: each.default for each in fields(TrainConfig)}
    other = {name for name in default if getattr(START, name) != default[name]} - {"device"}
    assert named == other | study.about.space.choices.keys() | {"class_weights", "seed"}


def test_without_a_winner_there_is_no_recipe(tmp_path):
    with study_in(tmp_path, GRAPH) as study:
        study.end(study.begin(9), RESULTS[3])
        write_tuned(tmp_path, study, "accuracy", "small")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == [
        "trials.csv",
        "trials.sqlite",
        "trials.svg",
    ]


def test_the_table_has_a_line_for_every_trial(written):
    folder, study = written
    with open(folder / "trials.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row["state"] for row in rows] == ["complete", "complete", "pruned", "failed", "complete"]
    assert [row["accuracy"] for row in rows] == ["0.5", "0.75", "0.6", "", "0.7"]
    assert rows[3]["reason"] == "the loss became nan, alas"
    assert [{name: row[name] for name in ("hops", "lr")} for row in rows] == [
        {name: str(each.tried[name]) for name in ("hops", "lr")} for each in study.ended
    ]


def test_the_picture_shows_every_trial_and_is_the_same_for_the_same_trials(written, monkeypatch):
    matplotlib_axes = pytest.importorskip("matplotlib.axes")
    folder, study = written
    before = (folder / "trials.svg").read_bytes()
    drawn = {}
    for name in ("plot", "step"):
        own = getattr(matplotlib_axes.Axes, name)

        def noted(self, *given, own=own, **named):
            drawn[named["label"]] = given[:2]
            return own(self, *given, **named)

        monkeypatch.setattr(matplotlib_axes.Axes, name, noted)
    write_tuned(folder, study, "accuracy", "small")
    assert (folder / "trials.svg").read_bytes() == before
    assert drawn == {
        "best so far": ([1, 2, 3, 4, 5], [0.5, 0.75, 0.75, 0.75, 0.75]),
        "complete": ([1, 2, 5], [0.5, 0.75, 0.7]),
        "pruned": ([3], [0.6]),
    }
    assert not re.search(rb"<dc:date>", before)


def test_matplotlib_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with (
        study_in(tmp_path, GRAPH) as study,
        pytest.raises(MissingExtra, match=r"needs the package matplotlib: pip install 'nagphormer\[tune\]'"),
    ):
        write_tuned(tmp_path, study, "accuracy", "small")
