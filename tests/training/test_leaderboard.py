import pytest
from examples import SETTINGS, named_graph, train_model

from nagphormer import TrainConfig
from nagphormer.training.ensemble import Ensemble, Part
from nagphormer.training.leaderboard import leaderboard

RUN, _ = train_model(named_graph(), TrainConfig(**SETTINGS | {"network": "linear"}))


def part(name, weight, loss):
    return Part(name, RUN, weight, score=0.5, loss=loss, train_seconds=1.0, predict_seconds=2.0)


def test_the_heaviest_stands_first_and_of_equals_the_one_with_the_lowest_loss():
    parts = (part("light", 0.2, 0.1), part("worse", 0.4, 0.9), part("better", 0.4, 0.3), part("unasked", 0.0, 0.2))
    subject = {name: getattr(RUN, name) for name in ("classes", "splits", "graph", "store")}
    rows = leaderboard(Ensemble(**subject, parts=parts, temperature=1.0, recipe="mine", given={}))
    assert [row["name"] for row in rows] == ["better", "worse", "light", "unasked"]
    facts = {"name": "better", "weight": 0.4, "score": 0.5, "loss": 0.3, "train_seconds": 1.0, "predict_seconds": 2.0}
    assert rows[0] == facts


def test_one_model_has_all_the_weight():
    (row,) = leaderboard(RUN)
    outcome = RUN.best.outcome
    assert (row["name"], row["weight"], row["score"], row["loss"]) == (
        "linear",
        1.0,
        outcome["best_metric"],
        outcome["best_loss"],
    )
    assert row["train_seconds"] == pytest.approx(sum(each["seconds"] for each in RUN.best.history), abs=0.01)
