import numpy as np
import pytest
import torch
from small import class_graph, make_trainer, quick, sparse_graph

from nagphormer import hop_tokens
from nagphormer.training import forward
from nagphormer.training.forward import rows_at_once
from nagphormer.training.sources import StoredTokens

STORE = hop_tokens(sparse_graph(40, 21), 2, device="cpu")


def outputs(trainer, nodes, **parts):
    """What the network says of some nodes, in one array, and the nodes of every batch."""
    model, source = trainer.model.eval(), trainer.source
    found = list(forward.forward(model, source, torch.from_numpy(nodes), model.classify, "fp32", **parts))
    return torch.cat([logits for _, logits in found]), [batch.tolist() for batch, _ in found]


@pytest.mark.parametrize("way", ["never", "always"])
def test_outputs_come_in_order_whatever_the_rows_of_a_batch(way):
    trainer, nodes = make_trainer(class_graph(sparse=True), quick(project_first=way)), np.array([5, 3, 149, 5, 0])
    whole, batches = outputs(trainer, nodes)
    parts, pairs = outputs(trainer, nodes, rows=2)
    assert (batches, pairs) == ([[5, 3, 149, 5, 0]], [[5, 3], [149, 5], [0]])
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    assert not whole.requires_grad


def test_no_nodes_have_no_batches():
    trainer = make_trainer(class_graph(), quick())
    assert list(forward.forward(trainer.model, trainer.source, torch.arange(0), trainer.model.classify, "fp32")) == []


def test_the_caller_of_a_pass_runs_outside_its_modes():
    trainer = make_trainer(class_graph(), quick())
    for _ in forward.forward(trainer.model.eval(), trainer.source, torch.arange(9), trainer.model.classify, "bf16", 4):
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")


def test_products_are_in_the_precision_asked_for():
    trainer = make_trainer(class_graph(), quick())
    found = {}
    for precision in ("fp32", "bf16"):
        ((_, hidden),) = forward.forward(
            trainer.model, trainer.source, torch.arange(9), lambda hidden: hidden, precision
        )
        found[precision] = hidden.dtype
    assert found == {"fp32": torch.float32, "bf16": torch.bfloat16}


def test_a_cpu_takes_as_many_rows_as_its_cache_holds(monkeypatch):
    source = StoredTokens(STORE, "cpu")
    monkeypatch.setattr(forward, "CACHED_VALUES", 9600)
    assert rows_at_once(source, 32) == 100
    monkeypatch.setattr(forward, "CACHED_VALUES", 1)
    assert rows_at_once(source, 32) == 16


@pytest.mark.parametrize(("memory", "rows"), [(10**12, 16384), (10**9, 6623), (0, 16)])
def test_a_gpu_takes_as_many_rows_as_its_memory_holds(memory, rows, monkeypatch):
    source = StoredTokens(STORE, "cpu")
    source.device = "cuda"
    monkeypatch.setattr(forward, "gpu_memory", lambda device: memory)
    assert rows_at_once(source, 512) == rows
