"""What every method of the comparison has to keep to, and what they share."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

from experiments.baselines.method import Sparse, Task, dropped, linear, sparse
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


SPARSE = ("mlp", "logistic", "tuned_gcn", "tuned_sage", "sgformer", "polynormer")
"""Methods that multiply features which are mostly zero as a sparse matrix."""


def with_few_words(num_words=200):
    """The same task twice: features of which 3 % are not zero, in a sparse matrix and in an array."""
    task = small_task()
    words = np.random.default_rng(0).random((task.num_nodes, num_words)).astype(np.float32)
    words[words > 0.03] = 0
    words[:, :3] = 0
    words[np.arange(task.num_nodes), task.graph.labels] = 1
    graph = from_scipy(task.adjacency, sp.csr_array(words), task.graph.labels)
    graph = graph.with_splits(**task.graph.splits)
    return Task(graph), Task(dataclasses.replace(graph, features=words))


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("row_normalized", [False, True])
def test_sparse_products_give_what_dense_ones_do(name, row_normalized):
    known = METHODS[name].resolved("cora", {})
    settings = {setting: 0.0 for setting in ("dropout", "input_dropout", "global_dropout") if setting in known}
    settings |= {"row_normalized": row_normalized} if "row_normalized" in known else {}
    few, many = (built(name, task, **METHODS[name].quick | settings) for task in with_few_words())
    assert any(isinstance(part, Sparse) for part in vars(few).values())
    assert not any(isinstance(part, Sparse) for part in vars(many).values())
    torch.testing.assert_close(few.eval().infer(), many.eval().infer(), rtol=1e-4, atol=1e-5)
    for method in (few, many):
        train(method, 1)
    gradients = [[each.grad for each in method.parameters() if each.grad is not None] for method in (few, many)]
    assert len(gradients[0]) > 1
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("task", [small_task(), with_few_words()[1]])
def test_features_that_lie_in_an_array_or_are_mostly_not_zero_are_multiplied_as_such(task):
    fifth = np.zeros((task.num_nodes, 10), dtype=np.float32)
    fifth[:, :2] = 1
    assert torch.equal(task.factors(), task.features)
    assert isinstance(Task(from_scipy(task.adjacency, sp.csr_array(fifth))).factors(), torch.Tensor)


def test_dropout_of_sparse_features_leaves_out_the_same_in_both_directions():
    torch.manual_seed(0)
    features = with_few_words()[0].factors()
    lost = dropped(features, torch.nn.Dropout(0.4))
    kept, whole = lost.matrix.to_dense(), features.matrix.to_dense()
    assert torch.equal(lost.transposed.to_dense(), kept.T)
    assert 0.3 < 1 - (kept != 0).sum() / (whole != 0).sum() < 0.5
    torch.testing.assert_close(kept[kept != 0], whole[kept != 0] / 0.6)
    assert torch.equal(dropped(features, torch.nn.Dropout(0.4).eval()).matrix.to_dense(), whole)


def test_a_map_of_sparse_features_by_hand():
    layer = torch.nn.Linear(3, 2)
    matrix = sp.csr_array(np.array([[0, 2, 0], [1, 0, 3]], dtype=np.float32))
    expected = [2 * layer.weight[:, 1] + layer.bias, layer.weight[:, 0] + 3 * layer.weight[:, 2] + layer.bias]
    torch.testing.assert_close(linear(layer, sparse(matrix)), torch.stack(expected))
