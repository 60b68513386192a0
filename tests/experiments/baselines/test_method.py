"""What every method of the comparison has to keep to, and what they share."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

from experiments.baselines.method import Task
from experiments.methods import COMPARED, METHODS
from nagphormer import from_scipy
from tests.experiments.small import small_task, train

BASELINES = [name for name in COMPARED if name != "nagphormer"]


def built(name, task=None, **settings):
    torch.manual_seed(0)
    entry = METHODS[name]
    return getattr(entry._loaded, entry.build)(task or small_task(), **settings)


def takes(name, setting):
    return setting in METHODS[name].resolved("cora", {})


@pytest.mark.parametrize("name", BASELINES)
def test_labels_of_other_nodes_have_no_part_in_training(name):
    task = small_task()
    labels = np.array(task.graph.labels)
    for split in ("val", "test"):
        labels[task.splits[split].numpy()] = 0
    states = []
    for graph in (task.graph, dataclasses.replace(task.graph, labels=labels)):
        method = built(name, Task(graph), **METHODS[name].quick)
        train(method, 2)
        states.append(method.state_dict())
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.mark.parametrize("name", BASELINES)
def test_learning_rate_and_weight_decay_reach_the_optimizer(name):
    groups = built(name, lr=0.123, weight_decay=0.456).optimizer.param_groups
    assert {group.get("initial_lr", group["lr"]) for group in groups} == {0.123}
    assert groups[-1 if name == "sgformer" else 0]["weight_decay"] == 0.456


@pytest.mark.parametrize("name", [name for name in BASELINES if takes(name, "row_normalized")])
def test_rows_are_normalized_where_asked_for(name):
    task = small_task()
    assert built(name, task, row_normalized=True).inputs is task.row_normalized
    assert built(name, task, row_normalized=False).inputs is task.features


DROPPED = {
    "mlp": ({"dropout": 0.4}, [0.4, 0.4]),
    "gcn": ({"dropout": 0.4}, [0.4, 0.4]),
    "gat": ({"dropout": 0.4}, [0.4, 0.4, 0.4, 0.4]),  # inputs and attention of both layers
    "appnp": ({"dropout": 0.4, "steps": 3}, [0.4] * 5),
    "gprgnn": ({"dropout": 0.4, "hop_dropout": 0.3}, [0.4, 0.4, 0.3]),
    "tuned_gcn": ({"dropout": 0.4, "num_layers": 3}, [0.4] * 3),
    "tuned_sage": ({"dropout": 0.4, "num_layers": 3}, [0.4] * 3),
    "sign": ({"dropout": 0.4, "num_layers": 2}, [0.4] * 2),
    "graphsaint": ({"dropout": 0.4}, [0.4] * 5),
    "pprgo": ({"dropout": 0.4}, [0.4, 0.4]),
    "grand_plus": ({"dropout": 0.4, "input_dropout": 0.3, "drop_node": 0.2, "batch_size": 90}, 2 * [0.2, 0.3, 0.4]),
    "gt": ({"dropout": 0.4, "input_dropout": 0.3, "num_layers": 2}, [0.3] + [0.4] * 5),
    "graphormer": (
        {"dropout": 0.4, "input_dropout": 0.3, "num_layers": 1},
        [0.3] + [0.4] * 6,
    ),  # attention twice: once more backward
    "san": ({"dropout": 0.4, "input_dropout": 0.3, "num_layers": 1}, [0.1] * 4 + [0.3] + [0.4] * 3),
    "graphgps": ({"dropout": 0.4, "attention_dropout": 0.3, "num_layers": 1}, [0.4, 0.3, 0.4, 0.4, 0.4, 0.3]),
    "gophormer": ({"dropout": 0.4, "num_layers": 2}, [0.4] * 5),
    "sgformer": ({"dropout": 0.4, "global_dropout": 0.3, "num_graph_layers": 3}, [0.3] * 2 + [0.4] * 4),
    "polynormer": ({"dropout": 0.4, "input_dropout": 0.3, "num_local_layers": 3}, [0.3] + [0.4] * 4),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_acts_where_it_is_published_to_in_training_only(monkeypatch, name):
    settings, expected = DROPPED[name]
    method = built(name, **settings)
    rates = record_dropout(monkeypatch)
    train(method, 1)
    assert rates == expected
    rates.clear()
    with torch.no_grad():
        method.eval().infer()
    assert rates == []


def record_dropout(monkeypatch):
    """The rates of whatever is dropped from now on."""
    rates, plain, attend = [], functional.dropout, functional.scaled_dot_product_attention

    def dropout(values, p=0.5, training=True, inplace=False):
        if training and p:
            rates.append(p)
        return plain(values, p, training, inplace)

    def attention(query, key, value, mask=None, dropout_p=0.0, *rest, **options):
        if dropout_p:
            rates.append(dropout_p)
        return attend(query, key, value, mask, dropout_p, *rest, **options)

    monkeypatch.setattr(functional, "dropout", dropout)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", attention)
    return rates


def test_sparse_features_are_the_same_as_dense_ones():
    task = small_task()
    sparse = from_scipy(task.adjacency, sp.csr_array(task.features.numpy()), task.graph.labels)
    assert sp.issparse(sparse.features)
    assert torch.equal(Task(sparse).features, task.features)
