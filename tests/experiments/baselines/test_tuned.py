import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.nn import GCNConv, SAGEConv

from experiments.baselines.method import Task
from experiments.baselines.tuned import SAGE_FEW, TunedGCN, TunedSAGE, settings_gcn, settings_sage
from nagphormer import from_scipy
from tests.experiments.small import accuracy, small_task, train

BOTH = pytest.mark.parametrize("kind", [TunedGCN, TunedSAGE])


def as_torch_geometric(layer):
    """The library's layer with the same weights."""
    if hasattr(layer, "neighbors"):
        twin = SAGEConv(layer.own.in_features, layer.own.out_features)
        twin.load_state_dict(
            {"lin_l.weight": layer.neighbors.weight, "lin_l.bias": layer.own.bias, "lin_r.weight": layer.own.weight}
        )
    else:
        twin = GCNConv(layer.linear.in_features, layer.linear.out_features)
        twin.load_state_dict({"lin.weight": layer.linear.weight, "bias": layer.bias})
    return twin


@BOTH
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
def test_layers_are_the_formula(kind, norm, residual):
    task = small_task()
    method = kind(task, hidden_dim=5, num_layers=3, norm=norm, residual=residual)
    torch.manual_seed(0)
    for parameter in method.parameters():
        torch.nn.init.normal_(parameter)
    method.train(norm == "batch")  # normalizes by the statistics of all nodes
    method.dropout.p = 0.0
    x = task.features
    for number, layer in enumerate(method.convolutions):
        hidden = as_torch_geometric(layer)(x, task.edge_index)
        if residual:
            linear = method.residuals[number]
            hidden = hidden + x @ linear.weight.T + linear.bias
        if norm != "none":
            over = 1 if norm == "layer" else 0
            centered = hidden - hidden.mean(dim=over, keepdim=True)
            hidden = centered / (hidden.var(dim=over, keepdim=True, correction=0) + 1e-5).sqrt()
            hidden = hidden * method.norms[number].weight + method.norms[number].bias
        x = hidden.clamp(min=0)
    expected = x @ method.classify.weight.T + method.classify.bias
    torch.testing.assert_close(method(), expected, rtol=1e-3, atol=1e-3)


def test_neighbors_are_averaged_by_hand():
    """Node 0 has neighbors 1 and 2; node 3 has none."""
    adjacency = np.zeros((4, 4), dtype=np.float32)
    adjacency[0, 1] = adjacency[1, 0] = adjacency[0, 2] = adjacency[2, 0] = 1
    task = Task(from_scipy(sp.csr_array(adjacency), np.eye(4, dtype=np.float32), np.arange(4) % 2))
    average = TunedSAGE.aggregation(task).toarray()
    assert average.tolist() == [[0, 0.5, 0.5, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


@BOTH
def test_dropout_is_not_on_the_input(kind):
    """With one layer, what is dropped is its output: the rest of a node's hidden units is exact."""
    method = kind(small_task(), hidden_dim=50, num_layers=1, dropout=0.5)
    kept = []
    method.classify.register_forward_hook(lambda module, inputs, output: kept.append(inputs[0]))
    method.train()()
    method.eval()()
    dropped, whole = kept
    survives = dropped != 0
    torch.testing.assert_close(dropped[survives], 2 * whole[survives])
    assert 0.4 < survives.sum() / (whole != 0).sum() < 0.6


@BOTH
def test_it_learns_communities(kind):
    torch.manual_seed(0)
    method = kind(small_task(), hidden_dim=64, lr=0.01)
    train(method, 40)
    assert accuracy(method) > 0.8


@pytest.mark.parametrize(("kind", "settings"), [(TunedGCN, settings_gcn), (TunedSAGE, settings_sage)])
def test_settings_build_and_differ(kind, settings):
    for dataset in ("computers", "photo", "cs", "physics", "pubmed", "cora", "citeseer", "flickr"):
        candidates = settings(dataset)
        assert len({str(setting) for setting in candidates}) == len(candidates) == 4
        for setting in candidates:
            kind(small_task(), **setting)


def test_published_settings_come_first():
    network = {"hidden_dim": 256, "num_layers": 6, "dropout": 0.5, "weight_decay": 5e-5}
    assert settings_gcn("photo")[0] == {**network, "row_normalized": True}
    assert settings_sage("physics")[0]["norm"] == "batch"
    assert settings_gcn("computers")[0]["residual"] is False


@pytest.mark.parametrize("kind", [TunedGCN, TunedSAGE])
def test_gradients_are_those_of_the_dense_product(kind):
    method = kind(small_task(), num_layers=1)
    matrix = torch.from_numpy(kind.aggregation(method.task).toarray())
    x, weight = torch.rand(90, 12, requires_grad=True), torch.rand(90, 256)
    layer = method.convolutions[0]
    (found,) = torch.autograd.grad((layer(x, *method.matrices) * weight).sum(), x)
    plain = matrix @ (x @ (layer.linear if kind is TunedGCN else layer.neighbors).weight.T)
    plain = plain + (0 if kind is TunedGCN else layer.own(x))
    (exact,) = torch.autograd.grad((plain * weight).sum(), x)
    torch.testing.assert_close(found, exact)


def test_sage_has_its_own_setting_for_few_labels():
    assert settings_sage("citeseer")[1] == SAGE_FEW["citeseer"]
