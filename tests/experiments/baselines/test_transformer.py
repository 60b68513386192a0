import pytest
import torch

from experiments.baselines import transformer
from experiments.baselines.graphgps import GraphGPS
from experiments.baselines.graphormer import Graphormer
from experiments.baselines.gt import GT
from experiments.baselines.san import SAN
from experiments.baselines.transformer import MOMENTUM, attend, embedding, empty_rows
from tests.experiments.small import small_task

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def states(num_heads=3, num_nodes=30, dim=5, dtype=torch.float64, device="cpu"):
    torch.manual_seed(0)
    return torch.randn(3, num_heads, num_nodes, dim, dtype=dtype, device=device, requires_grad=True)


def formula(query, key, value, bias=0.0):
    scores = torch.einsum("hid,hjd->hij", query, key) / query.shape[-1] ** 0.5
    return (scores + bias).softmax(dim=2) @ value


@pytest.mark.parametrize("largest", [1, 2 * 30**2, 2**31])
@pytest.mark.parametrize("shape", [(), (30, 30), (3, 30, 30)])
@pytest.mark.parametrize("learned", [False, True])
def test_attention_is_the_formula_however_many_heads_a_call_takes(monkeypatch, largest, shape, learned):
    monkeypatch.setattr(transformer, "LARGEST", largest)
    inputs, bias = states(), torch.randn(shape, dtype=torch.float64, requires_grad=learned) if shape else None
    wanted = [inputs, bias] if shape and learned else [inputs]
    found, expected = attend(*inputs, bias), formula(*inputs, 0.0 if bias is None else bias)
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(expected)
    for got, right in zip(
        torch.autograd.grad(found, wanted, direction), torch.autograd.grad(expected, wanted, direction), strict=True
    ):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("rows", [1, 7, 256])
@pytest.mark.parametrize("shape", [(), (30, 30), (3, 30, 30)])
def test_on_a_cpu_both_passes_draw_the_same_dropout_however_many_rows_they_take(monkeypatch, rows, shape):
    monkeypatch.setattr(transformer, "ROWS", rows)
    inputs = states(dim=30).detach()
    inputs[2] = torch.eye(30)  # what a node takes from every other is its row of weights
    inputs.requires_grad_()
    bias = torch.randn(shape, dtype=torch.float64) if shape else None
    dropped = attend(*inputs, bias, dropout=0.5)
    kept = dropped.detach() != 0
    assert 0.4 < kept.double().mean() < 0.6
    plain = formula(*inputs, 0.0 if bias is None else bias)
    torch.testing.assert_close(dropped.detach(), 2 * plain.detach() * kept)
    direction = torch.randn_like(plain)
    (found,) = torch.autograd.grad(dropped, inputs, direction)
    query, key, value = inputs
    weights = formula(query, key, torch.eye(30, dtype=torch.float64), 0.0 if bias is None else bias) * 2 * kept
    (expected,) = torch.autograd.grad(weights @ value, inputs, direction)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(), (3, 2000, 2000)])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_on_a_cpu_weights_are_not_kept_for_the_backward_pass(shape, dropout):
    inputs = states(3, 2000, 8, torch.float32)
    bias = torch.zeros(shape, requires_grad=True) if shape else None
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        attend(*inputs, bias, dropout=dropout)
    own = [tensor for tensor in kept if bias is None or tensor.untyped_storage() != bias.untyped_storage()]
    assert sum(tensor.numel() for tensor in own) < 2000**2


def test_rows_of_a_bias_start_at_multiples_of_eight():
    rows = empty_rows(3, 30, 30, device=torch.device("cpu"))
    assert rows.shape == (3, 30, 30)
    assert rows.stride() == (30 * 32, 32, 1)


def test_embedded_features_have_unit_variance():
    torch.manual_seed(0)
    embedded = embedding(20, 6)(torch.rand(500, 20))
    torch.testing.assert_close(embedded.std(dim=0), torch.ones(6), rtol=0.01, atol=0)
    assert torch.equal(embedded.mean(dim=0).abs() < 1e-5, torch.ones(6, dtype=torch.bool))


def test_features_are_dropped_in_training_only():
    torch.manual_seed(0)
    embed = embedding(8, 8, dropout=0.5)
    torch.nn.init.eye_(embed[1].weight)
    torch.nn.init.zeros_(embed[1].bias)
    mapped = embed[:2]  # before they are scaled
    dropped = mapped(torch.ones(1000, 8))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert (dropped == 0).float().mean() == pytest.approx(0.5, abs=0.02)
    assert torch.equal(mapped.eval()(torch.ones(1000, 8)), torch.ones(1000, 8))


@pytest.mark.parametrize("method", [GT, SAN, Graphormer])
def test_a_method_drops_as_many_features_as_it_is_told(method):
    assert method(small_task(), num_layers=1, input_dropout=0.4).embed[0].p == 0.4


@needs_gpu
def test_on_a_gpu_weights_are_never_stored():
    inputs = states(8, 6001, 10, torch.float32, "cuda")
    bias = empty_rows(8, 6001, 6001, device=inputs.device).normal_().requires_grad_()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attend(*inputs, bias, dropout=0.5)
    assert torch.cuda.max_memory_allocated() - before < 0.2 * bias.nbytes


@needs_gpu
@pytest.mark.parametrize("shape", [(800, 800), (3, 800, 800)])
def test_on_a_gpu_attention_is_the_formula_in_half_precision(shape):
    inputs = states(3, 800, 10, torch.float32, "cuda")
    bias = empty_rows(*shape, device=inputs.device).normal_()
    bias[..., torch.rand(800, 800, device="cuda") < 0.3] = -torch.inf
    bias.requires_grad_(len(shape) == 3)
    wanted = [inputs, bias] if bias.requires_grad else [inputs]
    found, expected = attend(*inputs, bias), formula(*inputs, bias.float())
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)
    direction = torch.randn_like(expected)
    for got, right in zip(
        torch.autograd.grad(found, wanted, direction), torch.autograd.grad(expected, wanted, direction), strict=True
    ):
        assert (got.float() - right.float()).norm() < 0.02 * right.float().norm()


@needs_gpu
def test_more_nodes_than_dropout_can_count_are_refused():
    inputs = torch.zeros(3, 1, 46_341, 8, device="cuda")
    with pytest.raises(ValueError, match="46,341 nodes are too many"):
        attend(*inputs, torch.zeros(1, 1, device="cuda"), dropout=0.1)


@needs_gpu
@pytest.mark.parametrize("with_bias", [True, False])
def test_on_a_gpu_both_passes_draw_the_same_dropout(with_bias):
    num_nodes = 34493  # two heads have 2³¹ weights
    inputs = states(4, num_nodes, 16, torch.float32, "cuda").detach()
    inputs[:] = 0  # equal weights: what a node takes from another is 0 or 2 / N
    inputs[2, :, :8, :8] = inputs[2, :, -8:, 8:] = torch.eye(8, device="cuda")  # told apart: eight first, eight last
    inputs.requires_grad_()
    bias = empty_rows(num_nodes, num_nodes, device=inputs.device).zero_() if with_bias else None
    attended = attend(*inputs, bias, dropout=0.5)  # (4, N, 16): what every node takes from each of the sixteen
    signs = torch.randint(0, 2, (num_nodes, 1), device="cuda") * 2.0 - 1
    (grad,) = torch.autograd.grad(attended, inputs, signs.expand_as(attended))
    found = torch.cat([grad[2, :, :8, 0], grad[2, :, -8:, 0]], dim=1)  # (4, 16)
    expected = (signs * attended.detach()).sum(dim=1)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02 * num_nodes**-0.5)


@pytest.mark.parametrize("method", [GT, SAN, Graphormer, GraphGPS])
def test_validation_follows_the_last_steps(method):
    norms = [each for each in method(small_task()).modules() if isinstance(each, torch.nn.BatchNorm1d)]
    assert {each.momentum for each in norms} == {MOMENTUM}
