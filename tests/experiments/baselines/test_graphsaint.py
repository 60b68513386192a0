import numpy as np
import pytest
import scipy.sparse as sp
import torch

from experiments.baselines import graphsaint
from experiments.baselines.graphsaint import GraphSAINT, WalkSampler
from experiments.baselines.method import Task
from nagphormer import from_scipy
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def lopsided_task():
    """The small task with one node tied to half of the others, which walks visit more often."""
    task = small_task()
    adjacency = task.adjacency.tolil()
    adjacency[0, 1::2] = adjacency[1::2, 0] = 1
    graph = from_scipy(sp.csr_array(adjacency), task.features.numpy(), task.labels.numpy(), splits=task.graph.splits)
    return Task(graph)


def test_a_subgraph_has_all_edges_among_its_nodes():
    task = small_task()
    positions = np.full((task.num_nodes, task.num_nodes), -1)
    positions[np.nonzero(dense_adjacency(task))] = np.arange(task.adjacency.nnz)
    sampler = WalkSampler(task.adjacency, np.arange(task.num_nodes), num_roots=4, walk_length=3, seed=1)
    for _ in range(5):
        subgraph = sampler.draw()
        found = np.full((len(subgraph.nodes), len(subgraph.nodes)), -1)
        edges = subgraph.edges.tocoo()
        found[edges.row, edges.col] = edges.data
        np.testing.assert_array_equal(found, positions[np.ix_(subgraph.nodes, subgraph.nodes)])


def test_walks_go_along_edges_as_far_as_their_length():
    path = sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1], shape=(10, 10)).tocsr()
    sampler = WalkSampler(path, np.arange(10), num_roots=1, walk_length=3, seed=0)
    sizes = []
    for _ in range(200):
        nodes = sampler.draw().nodes
        np.testing.assert_array_equal(nodes, np.arange(nodes[0], nodes[-1] + 1))
        sizes.append(len(nodes))
    assert set(sizes) == {2, 3, 4}


def test_a_walk_from_an_isolated_node_stays_there():
    sampler = WalkSampler(sp.csr_array((3, 3), dtype=np.float32), np.arange(3), num_roots=1, walk_length=4, seed=0)
    assert len(sampler.draw().nodes) == 1


def test_subgraphs_cover_each_root_as_often_as_asked():
    task = small_task()
    roots = task.splits["train"].numpy()
    sampler = WalkSampler(task.adjacency, roots, num_roots=5, walk_length=2, seed=0)
    sizes = [np.isin(subgraph.nodes, roots).sum() for subgraph in sampler.cover(7)]
    assert sum(sizes[:-1]) < 7 * len(roots) <= sum(sizes)


def test_walks_begin_at_the_roots():
    path = sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1], shape=(10, 10)).tocsr()
    sampler = WalkSampler(path, np.array([2, 9]), num_roots=1, walk_length=0, seed=0)
    assert {node for _ in range(50) for node in sampler.draw().nodes} == {2, 9}


@pytest.fixture(scope="module")
def sampled():
    """Counts from many subgraphs, and other subgraphs to judge them by."""
    task = lopsided_task()
    sampler = WalkSampler(task.adjacency, task.splits["train"].numpy(), num_roots=6, walk_length=2, seed=0)
    counted = sampler.cover(400)
    counts = graphsaint.count(counted, task.adjacency)
    return task, counts, len(counted), [sampler.draw() for _ in range(3000)]


def test_the_normalized_aggregator_is_unbiased(sampled):
    task, counts, _, fresh = sampled
    dense = dense_adjacency(task)
    features = task.features.numpy().astype(np.float64)
    exact = dense @ features / dense.sum(axis=1, keepdims=True).clip(min=1)

    def error(weights):
        totals, times = np.zeros_like(exact), np.zeros(task.num_nodes)
        for subgraph in fresh:
            edges = subgraph.edges
            local = sp.csr_array((weights[edges.data], edges.indices, edges.indptr), shape=edges.shape)
            totals[subgraph.nodes] += local @ features[subgraph.nodes]
            times[subgraph.nodes] += 1
        return np.linalg.norm(totals / times[:, None] - exact) / np.linalg.norm(exact)

    plain = graphsaint.aggregator_weights(np.ones(task.num_nodes), np.ones(task.adjacency.nnz), task.adjacency)
    assert error(graphsaint.aggregator_weights(*counts, task.adjacency)) < 0.15
    assert error(plain) > 0.4  # each neighbor is missing most of the time


def test_the_normalized_loss_is_unbiased(sampled):
    task, (node_counts, _), num_counted, fresh = sampled
    nodes = task.splits["train"].numpy()
    losses = np.random.default_rng(0).random(task.num_nodes) + 5 * (np.arange(task.num_nodes) == nodes[0])
    losses += 5 * dense_adjacency(task).sum(axis=1) / dense_adjacency(task).sum(axis=1).max()
    weights = graphsaint.loss_weights(node_counts, num_counted, nodes)
    exact = losses[nodes].mean()
    estimate = np.mean([weights[subgraph.nodes] @ losses[subgraph.nodes] for subgraph in fresh])
    is_train = np.isin(np.arange(task.num_nodes), nodes)
    means = [losses[subgraph.nodes][is_train[subgraph.nodes]].mean() for subgraph in fresh]
    assert abs(estimate / exact - 1) < 0.02
    assert abs(np.mean(means) / exact - 1) > 0.1  # the mean within a subgraph prefers nodes of high degree


def test_the_counted_subgraphs_give_the_exact_mean_loss():
    task = small_task()
    torch.manual_seed(0)
    method = GraphSAINT(task, hidden_dim=4, orders=(0,), num_roots=15, walk_length=2, coverage=20).eval()
    nodes = task.splits["train"]
    with torch.no_grad():  # of order 0, so that the loss of a node does not depend on the subgraph
        mean = np.mean([method.loss(subgraph).item() for subgraph in method.waiting])
        exact = torch.nn.functional.cross_entropy(method.infer()[nodes], task.labels[nodes]).item()
    assert mean == pytest.approx(exact, rel=1e-4)


def test_layers_are_the_formula():
    task = small_task()
    torch.manual_seed(0)
    method = GraphSAINT(task, hidden_dim=16, num_roots=10, coverage=2).eval()
    for layer in method.layers:
        for bias in layer.biases:
            torch.nn.init.normal_(bias)
    dense = dense_adjacency(task)
    propagate = dense / dense.sum(axis=1, keepdims=True).clip(min=1)
    hidden = task.features.numpy().astype(np.float64)
    for layer, order in zip(method.layers, (1, 0, 1, 0), strict=True):
        parts = []
        for power in range(order + 1):
            linear = layer.linears[power]
            part = np.linalg.matrix_power(propagate, power) @ hidden @ linear.weight.detach().numpy().T
            part = np.maximum(part + layer.biases[power].detach().numpy(), 0)
            parts.append((part - part.mean(axis=1, keepdims=True)) / part.std(axis=1, keepdims=True).clip(min=1e-9))
        hidden = np.concatenate(parts, axis=1)
    hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
    expected = hidden @ method.classifier.weight.detach().numpy().T + method.classifier.bias.detach().numpy()
    np.testing.assert_allclose(method.infer().detach().numpy(), expected, atol=1e-3)


def test_counted_subgraphs_are_trained_on_first_and_then_new_ones():
    task = small_task()
    method = GraphSAINT(task, num_roots=5, walk_length=2, coverage=2)
    counted = len(method.waiting)
    assert method.num_batches == 6  # 54 training nodes, walks of 10 steps together
    train(method, 1)
    assert len(method.waiting) == counted - 6
    train(method, 2)
    assert not method.waiting


def test_it_learns_communities():
    torch.manual_seed(0)
    method = GraphSAINT(small_task(), num_roots=10, coverage=20)
    train(method, 25)
    assert accuracy(method) > 0.8


def test_a_step_aggregates_by_the_weights_of_the_sampling():
    method = GraphSAINT(small_task(), num_roots=5, walk_length=2, coverage=20)
    subgraph, seen = method.waiting[0], []
    method.layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].to_dense().numpy()))
    method.loss(subgraph)
    node_counts, edge_counts = (np.zeros((90, *shape)) for shape in ((), (90,)))
    for each in method.waiting:
        node_counts[each.nodes] += 1
        edges = each.edges.tocoo()
        edge_counts[each.nodes[edges.row], each.nodes[edges.col]] += 1
    degrees = np.diff(method.task.adjacency.indptr)
    whole = dense_adjacency(method.task) * (node_counts / degrees)[:, None] / np.maximum(edge_counts, 1)
    np.testing.assert_allclose(seen[0], whole[np.ix_(subgraph.nodes, subgraph.nodes)], rtol=1e-5)


def test_gradients_are_clipped():
    method = GraphSAINT(small_task(), num_roots=10, coverage=2, clip_norm=1e-3)
    train(method, 1)
    assert torch.stack([p.grad.norm() for p in method.parameters()]).norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_the_seed_draws_the_walks():
    graph = small_task().graph
    first, second, again = (GraphSAINT(Task(graph, seed=s), num_roots=5, coverage=2).waiting[0] for s in (0, 1, 0))
    assert first.nodes.tolist() == again.nodes.tolist() != second.nodes.tolist()
