import dataclasses

import numpy as np
import pytest

from experiments.data import AT_HAND, ON_FIXED, OTHERS, judged_by, load, title
from nagphormer import load_graph, per_class_split, random_split, synthetic_graph
from nagphormer.data.datasets import DATASETS
from nagphormer.data.splits import budget_split


def test_a_data_set_has_the_split_of_its_seed():
    for name, expected in (
        ("cora", load_graph("cora", seed=1)),
        ("random-100", random_split(synthetic_graph(100, 1000, 64, 10), seed=1)),
    ):
        graph = load(name, 1)
        assert graph.num_edges == expected.num_edges
        for split in ("train", "val", "test"):
            np.testing.assert_array_equal(graph.splits[split], expected.splits[split])


def test_a_file_of_ten_splits_gives_the_one_of_the_seed_and_one_without_a_random_one(monkeypatch):
    asked = []
    plain = load_graph("cora").altered(splits={})
    monkeypatch.setattr("experiments.data.load_graph", lambda *rest, **options: asked.append(options) or plain)
    graph = load("actor", 3)
    assert asked == [{"split": 3, "seed": 3}]
    for split, nodes in random_split(plain, seed=3).splits.items():
        np.testing.assert_array_equal(graph.splits[split], nodes)


@pytest.mark.parametrize("name", ON_FIXED)
def test_the_fixed_split_is_the_stored_one_whatever_the_seed(data_folder, name):
    stored = np.load(data_folder / f"{name.removesuffix('-fixed')}.npz")
    graph = load(name, 3)
    assert graph.name == name.removesuffix("-fixed")
    for split, key in (("train", "split60_train"), ("val", "split60_valid"), ("test", "split60_test")):
        np.testing.assert_array_equal(graph.splits[split], np.sort(stored[key]))


def test_titles_name_the_split_and_what_a_synthetic_graph_stands_for():
    names = ("photo", "photo-fixed", "synthetic-aminer", "random-100")
    assert [title(name) for name in names] == [
        "Photo",
        "Photo, fixed split",
        "synthetic, AMiner-CS's size",
        "random-100",
    ]


def test_a_synthetic_graph_has_size_and_split_rule_of_the_one_it_stands_for(monkeypatch):
    size = DATASETS["cora"]
    for rule, split in (("per_class", per_class_split), ("budget", budget_split)):
        monkeypatch.setitem(DATASETS, "cora", dataclasses.replace(size, rule=rule))
        graph = load("synthetic-cora", 1)
        expected = split(synthetic_graph(2708, 5278, 1433, 7), seed=1)
        assert (graph.num_nodes, graph.num_features, graph.num_classes) == (2708, 1433, 7)
        np.testing.assert_array_equal(graph.splits["train"], expected.splits["train"])


def test_minesweeper_alone_is_judged_by_the_area_under_the_roc_curve():
    assert {name: judged_by(name) for name in (*AT_HAND, *OTHERS) if judged_by(name) != "accuracy"} == {
        "minesweeper": "roc_auc"
    }
