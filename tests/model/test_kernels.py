"""The GPU's kernels against the plain modules they stand for."""

import pytest
import torch
from torch import nn

from nagphormer import ModelConfig, NAGphormer
from nagphormer.model import kernels, ops
from nagphormer.model.dropout import Dropout
from nagphormer.model.encoder import SelfAttention
from nagphormer.model.readout import AttentionReadout

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or kernels.triton is None, reason="needs a CUDA device and Triton"
)
KINDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture
def fused(monkeypatch):
    """Every block of work is worth compiling for."""
    monkeypatch.setattr(ops, "_enough", kernels.triton is not None)


def some(*shape, kind=torch.float32, seed=0):
    """Random numbers that the kind can hold, on the GPU, to be differentiated."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(kind)
    return values.cuda().requires_grad_()


def distance(found, expected):
    assert found.shape == expected.shape
    assert found.isfinite().all()
    return float((found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-12))


def assert_same(found, expected, inputs, kind, seed=7):
    """Equal outputs and equal gradients for a random linear loss; both within the kind's rounding."""
    grads = []
    for outputs in (found, expected):
        weights = [torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to(out) for out in outputs]
        grads.append(torch.autograd.grad(outputs, inputs, weights))
    for one, other in (*zip(found, expected, strict=True), *zip(*grads, strict=True)):
        assert distance(one, other) < KINDS[kind]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tokens", "heads", "dim"), [(1, 2, 16), (4, 8, 16), (11, 8, 64), (21, 2, 32), (11, 1, 512)])
def test_attention_equals_the_plain_one(kind, tokens, heads, dim):
    qkv = some(9, tokens, 3, heads, dim, kind=kind)
    query, key, value = qkv.double().permute(2, 0, 3, 1, 4)
    attention = ((query * dim**-0.5) @ key.transpose(2, 3)).softmax(dim=-1)
    expected = (attention @ value).transpose(1, 2).flatten(2)
    assert_same((kernels.attend(qkv, 0.0),), (expected,), (qkv,), kind)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [16, 24, 96, 512])
@pytest.mark.parametrize("added", [False, True])
def test_adding_and_normalizing_equals_two_passes(kind, dim, added):
    hidden, norm = some(13, 5, dim, kind=kind), nn.LayerNorm(dim).cuda()
    for weight in norm.parameters():
        nn.init.normal_(weight)
    update = some(13, 5, dim, kind=kind, seed=1) if added else None
    total = hidden.float() if update is None else (hidden.float() + update.float()).to(kind).float()
    inputs = (hidden, *norm.parameters(), *([update] if added else []))
    assert_same(kernels.add_norm(hidden, update, norm, 0.0), (total, norm(total)), inputs, kind)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tokens", "dim"), [(2, 16), (4, 24), (11, 512), (21, 128)])
def test_the_readout_equals_the_plain_one(kind, tokens, dim):
    values, score = some(9, tokens, dim, kind=kind), some(dim, seed=1)
    weights = (values.float() @ score)[:, 1:].softmax(dim=-1)
    expected = values[:, 0].float() + (weights.unsqueeze(1) @ values[:, 1:].float()).squeeze(1)
    assert_same((kernels.read_out(values, score),), (expected,), (values, score), kind)


@pytest.mark.gpu
@needs_gpu
def test_dropout_forgets_its_share_and_the_gradient_knows_which():
    hidden, update, norm = some(400, 5, 64), some(400, 5, 64, seed=1), nn.LayerNorm(64).cuda()
    total, _ = kernels.add_norm(hidden, update, norm, 0.25)
    factor = ((total - hidden) / update).detach()
    assert (factor.abs() < 1e-4).float().mean().item() == pytest.approx(0.25, abs=0.01)
    kept = (total - hidden - update * 4 / 3)[factor > 0.5]
    torch.testing.assert_close(kept, torch.zeros_like(kept), rtol=0, atol=1e-5)
    (gradient,) = torch.autograd.grad(total.sum(), update)
    torch.testing.assert_close(gradient > 0, factor > 0.5)


@pytest.mark.gpu
@needs_gpu
def test_dropout_of_attention_keeps_the_mean_and_is_drawn_anew():
    qkv = torch.zeros(2000, 4, 3, 2, 16, device="cuda")
    qkv[:, :, 2] = 1
    one, other = kernels.attend(qkv, 0.5), kernels.attend(qkv, 0.5)
    assert one.mean().item() == pytest.approx(1, abs=0.02)
    assert not torch.equal(one, other)
    torch.manual_seed(3)
    again = kernels.attend(qkv, 0.5)
    torch.manual_seed(3)
    assert torch.equal(again, kernels.attend(qkv, 0.5))


@pytest.mark.gpu
@needs_gpu
def test_the_gradient_of_attention_knows_what_was_dropped():
    qkv, rate = torch.randn(6, 5, 3, 2, 16, generator=torch.Generator().manual_seed(1)).cuda(), 0.4

    def attend(given):
        torch.manual_seed(5)
        return kernels.attend(given, rate)

    identity = qkv.clone()
    identity[:, :, 2] = torch.eye(5, 16, device="cuda")[:, None]
    weights = attend(identity).view(6, 5, 2, 16)[..., :5]  # what attention and dropout leave of each token
    assert 0.2 < (weights == 0).float().mean().item() < 0.6
    leaf, direction = qkv.clone().requires_grad_(), torch.randn_like(qkv)
    out = attend(leaf)
    incoming = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, leaf, incoming)
    of_value = torch.einsum("bihj,bihd->bjhd", weights, incoming.view(6, 5, 2, 16))
    torch.testing.assert_close(gradient[:, :, 2], of_value, rtol=1e-4, atol=1e-4)
    ahead, behind = ((attend(qkv + step * direction) * incoming).sum().item() for step in (1e-2, -1e-2))
    assert (gradient * direction).sum().item() == pytest.approx((ahead - behind) / 2e-2, rel=2e-2)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(("layers", "heads", "tokens"), [(1, 6, 11), (2, 1, 4), (0, 1, 4), (1, 3, 1), (2, 3, 4)])
def test_a_network_and_its_gradients_are_those_of_the_plain_modules(kind, layers, heads, tokens, linear, monkeypatch):
    config = ModelConfig(
        input_dim=20,
        num_classes=5,
        hidden_dim=96,
        num_heads=heads,
        num_layers=layers,
        dropout=0.0,
        attention_dropout=0.0,
        linear_tokens=tokens * linear,
    )
    torch.manual_seed(0)
    model = NAGphormer(config).cuda()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.1)
    batch, found = some(50, tokens, 20), []
    for enabled, rounded in ((True, kind == torch.bfloat16), (False, kind == torch.bfloat16), (False, False)):
        monkeypatch.setattr(ops, "_enough", enabled)
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=rounded):
            logits = model(batch)
        logits.float().square().sum().backward()
        gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        found.append({"logits": logits.detach(), **{name: gradient.clone() for name, gradient in gradients.items()}})
    fused, plain, exact = found
    for name, expected in exact.items():
        if expected.norm() > 1e-3:  # what cancels in the softmax has none
            assert distance(fused[name], expected) < 2 * distance(plain[name], expected) + 3 * KINDS[kind], name


@pytest.mark.gpu
@needs_gpu
def test_modules_call_the_kernels_where_work_is_large(fused, monkeypatch):
    called = []
    for name in ("attend", "add_norm", "read_out"):
        work = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *given, name=name, work=work: called.append(name) or work(*given))
    hidden = some(5, 4, 32)
    SelfAttention(32, 2, 0.0).cuda()(hidden)
    ops.add_norm(hidden, None, nn.LayerNorm(32).cuda(), Dropout(0.0))
    AttentionReadout(32).cuda()(hidden)
    assert called == ["attend", "add_norm", "read_out"]
