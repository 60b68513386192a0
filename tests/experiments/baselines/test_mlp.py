import numpy as np
import scipy.sparse as sp
import torch

from experiments.baselines.method import Task
from experiments.baselines.mlp import MLP, settings
from nagphormer import from_scipy
from tests.experiments.small import accuracy, small_task, train


def test_it_is_the_formula():
    task = small_task()
    method = MLP(task, hidden_dim=5).eval()
    _, first, _, _, second = [layer.state_dict() for layer in method.layers]
    hidden = task.features.numpy() @ first["weight"].numpy().T + first["bias"].numpy()
    expected = np.maximum(hidden, 0) @ second["weight"].numpy().T + second["bias"].numpy()
    np.testing.assert_allclose(method().detach().numpy(), expected, atol=1e-5)


def test_it_sees_no_graph():
    task = small_task()
    empty = sp.csr_array((task.num_nodes, task.num_nodes), dtype=np.float32)
    bare = Task(from_scipy(empty, task.features.numpy(), task.graph.labels))
    method = MLP(task).eval()
    alone = MLP(bare).eval()
    alone.load_state_dict(method.state_dict())
    torch.testing.assert_close(alone(), method())


def test_it_learns_classes_from_features():
    torch.manual_seed(0)
    method = MLP(small_task(num_nodes=300))
    train(method, 60)
    assert accuracy(method) > 0.6


def test_settings_build():
    for setting in settings("cora"):
        MLP(small_task(), **setting)


def test_the_hidden_width_is_the_one_asked_for():
    assert MLP(small_task(), hidden_dim=5).layers[1].out_features == 5
