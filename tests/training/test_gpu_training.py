"""Training and prediction on a GPU against the CPU, and its ways to get there against each other."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small import (
    class_graph,
    initial_network,
    make_trainer,
    quick,
    same_weights,
    source_of,
    train_model,
    weights_of,
)

from nagphormer import NodeClassifier, device, from_scipy, hop_tokens
from nagphormer.data.classes import Classes
from nagphormer.model import ops
from nagphormer.tokens.store import STORED
from nagphormer.training import loop, sources
from nagphormer.training.batches import Batch
from nagphormer.training.loop import Trainer
from nagphormer.training.sources import StoredTokens
from nagphormer.training.task import Task

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GRAPH = class_graph(sparse=True)
WIDE = {"hidden_dim": 64, "num_heads": 2}  # heads that the kernel for attention can take
NOISE = {"dropout": 0.3, "attention_dropout": 0.2, "feature_dropout": 0.2}


def trainer_on(device, config, source=None, graph=GRAPH):
    source = source or source_of(graph, config, device)
    task = Task(graph, Classes.of(graph), device, config.class_weights)
    return Trainer(initial_network(graph, config), source, task, dict(graph.splits), config)


def losses(trainer):
    trainer.run()
    return [record[name] for record in trainer.history.records for name in ("train_loss", "val_loss")]


@pytest.fixture(params=[False, True], ids=["plain", "fused"])
def either(request, monkeypatch):
    """With and without the kernels for large work."""
    monkeypatch.setattr(ops, "REPAID", 0 if request.param else np.inf)
    monkeypatch.setattr(ops, "_compiled", set())


@pytest.mark.parametrize("way", ["never", "always"])
@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_captured_steps_give_the_losses_of_plain_ones(way, clip_norm, either, monkeypatch):
    config = quick(**WIDE, project_first=way, epochs=6, clip_norm=clip_norm, device="cuda")  # 90 nodes = 32 + 32 + 26
    captured = trainer_on("cuda", config)
    found = losses(captured)
    assert sorted(captured._captured) == [26, 32]
    assert None not in captured._captured.values()
    monkeypatch.setattr(Trainer, "_replay", lambda self, batch: self._learn(len(batch.nodes), [batch]))
    plain = trainer_on("cuda", config)
    assert found == pytest.approx(losses(plain), rel=1e-5)
    assert not plain._captured


def test_captured_dropout_is_drawn_from_the_seed(either):
    config = quick(**WIDE, **NOISE, epochs=5, batch_size=30, device="cuda")
    one, other = trainer_on("cuda", config), trainer_on("cuda", config)
    assert losses(one) == losses(other)
    assert same_weights(weights_of(one.model), weights_of(other.model))


@pytest.mark.parametrize("noise", NOISE)
def test_captured_dropout_differs_between_updates(noise, either):
    config = quick(**WIDE, **{noise: 0.3}, device="cuda")
    trainer = trainer_on("cuda", config)
    trainer.model.train()
    nodes = torch.from_numpy(GRAPH.splits["train"]).cuda()
    trainer._optimizer.step = lambda: None  # the same weights every time
    with ops.enough_work(1, loop.kernel_shape(config, trainer.source, config.precision)):
        found = [float(trainer._step(len(nodes), [Batch(nodes)])) for _ in range(6)]
    assert trainer._captured[len(nodes)] is not None
    assert len(set(found)) == 6


@pytest.mark.parametrize("labels", ["one", "several"])
def test_class_weights_and_several_labels_are_captured_too(labels, either, monkeypatch):
    graph = GRAPH
    if labels == "several":
        graph = from_scipy(GRAPH.adjacency(), GRAPH.features, np.eye(3, dtype=int)[GRAPH.labels], GRAPH.splits)
    config = quick(**WIDE, class_weights="balanced", epochs=5, device="cuda")
    found = losses(trainer_on("cuda", config, graph=graph))
    monkeypatch.setattr(Trainer, "_replay", lambda self, batch: self._learn(len(batch.nodes), [batch]))
    assert found == pytest.approx(losses(trainer_on("cuda", config, graph=graph)), rel=1e-5)


def test_a_batch_too_large_for_one_pass_is_taken_in_pieces(either, monkeypatch):
    config = quick(**WIDE, epochs=3, batch_size=90, device="cuda")
    whole = losses(trainer_on("cuda", config))
    monkeypatch.setattr(loop, "rows_at_once", lambda *_: 32)
    pieces = trainer_on("cuda", config)
    assert losses(pieces) == pytest.approx(whole, rel=1e-4)
    assert not pieces._captured


@pytest.mark.parametrize(("precision", "accepted"), [("fp32", 1e-3), ("bf16", 1e-2)])
@pytest.mark.parametrize("way", ["never", "always"])
def test_training_follows_the_cpu(way, precision, accepted, either):
    config = quick(**WIDE, project_first=way, epochs=5, lr=0.001)
    on_cpu = losses(make_trainer(GRAPH, config))
    assert losses(trainer_on("cuda", replace(config, precision=precision))) == pytest.approx(on_cpu, rel=accepted)


@pytest.mark.parametrize("way", ["never", "always"])
def test_gradients_are_those_of_the_cpu(way, either):
    config = quick(**WIDE, project_first=way, epochs=1)
    nodes = torch.from_numpy(GRAPH.splits["train"].copy())
    found = {}
    for place in ("cpu", "cuda"):
        trainer = trainer_on(place, config)
        with ops.enough_work(1, loop.kernel_shape(config, trainer.source, config.precision)):
            trainer._backward(next(trainer.source.batches([nodes])), len(nodes))
        found[place] = {name: weight.grad.cpu() for name, weight in trainer.model.named_parameters()}
    for name, expected in found["cpu"].items():
        torch.testing.assert_close(found["cuda"][name], expected, rtol=1e-3, atol=1e-5, msg=name)


def test_steps_do_not_wait_for_the_gpu(either):
    config = quick(**WIDE, **NOISE, device="cuda")
    trainer = trainer_on("cuda", config)
    trainer.model.train()
    nodes = torch.from_numpy(GRAPH.splits["train"].copy()).cuda()
    with ops.enough_work(1, loop.kernel_shape(config, trainer.source, config.precision)):
        for step in range(6):
            torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")  # by then it is captured
            try:
                trainer._step(len(nodes), [Batch(nodes)])
            finally:
                torch.cuda.set_sync_debug_mode("default")
    assert trainer._captured[len(nodes)] is not None


def test_training_again_takes_no_more_memory(either):
    def fitted():
        losses(trainer_on("cuda", quick(**WIDE, epochs=4, device="cuda")))
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated()

    first, *others = [fitted() for _ in range(6)][1:]
    assert others == [first] * 4


def test_streamed_tokens_are_the_resident_ones(either, monkeypatch, tmp_path):
    store = hop_tokens(GRAPH, 2, device="cpu", out=tmp_path / "tokens")
    config = quick(**NOISE, epochs=4, batch_size=25, device="cuda")
    resident = trainer_on("cuda", config, StoredTokens(store, "cuda"))
    assert resident.source._resident
    expected = losses(resident)
    monkeypatch.setattr(sources, "_fits", lambda store, device: False)
    streamed = trainer_on("cuda", config, StoredTokens(store, "cuda"))
    assert not streamed.source._resident
    assert losses(streamed) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("block_bytes", [None, 150 * 2 * 3])
def test_streamed_batches_arrive_in_order_and_whole(block_bytes, monkeypatch):
    if block_bytes:
        monkeypatch.setattr("nagphormer.tokens.store.BLOCK_BYTES", block_bytes)
    store = hop_tokens(GRAPH, 2, device="cpu")
    assert (len(store.blocks) > 1) == bool(block_bytes)
    monkeypatch.setattr(sources, "gpu_memory", lambda device: 0)
    source = StoredTokens(store, "cuda")
    parts = list(torch.randperm(150).repeat(40).split(7))
    for nodes, batch in zip(parts, source.batches(parts), strict=True):
        np.testing.assert_array_equal(batch.nodes.cpu(), nodes)
        np.testing.assert_array_equal(source._decode(batch.stored).cpu(), store[nodes.numpy()])


def test_tokens_made_on_the_gpu_stay_there():
    store = hop_tokens(GRAPH, 2, device="cuda")
    assert store.on_gpu
    source = StoredTokens(store, "cuda")
    assert source._resident is store.blocks
    np.testing.assert_array_equal(source.gather(torch.arange(150).cuda()).cpu()[:, :, :8], np.asarray(store))
    np.testing.assert_array_equal(store[[3, 5]], np.asarray(store)[[3, 5]])
    np.testing.assert_array_equal(store[7], np.asarray(store)[7])


def test_predictions_are_those_of_the_cpu(either):
    fitted = NodeClassifier(hops=2, **WIDE, epochs=8, precision="fp32", device="cuda").fit(GRAPH)
    on_gpu = fitted.predict_proba(GRAPH)
    attention, embedded = fitted.hop_attention(GRAPH), fitted.embed(GRAPH)
    on_cpu = fitted.set_params(device="cpu")
    on_cpu.tokens_ = None
    np.testing.assert_allclose(on_gpu, on_cpu.predict_proba(GRAPH), atol=2e-4)
    np.testing.assert_allclose(attention, on_cpu.hop_attention(GRAPH), atol=2e-4)
    np.testing.assert_allclose(embedded, on_cpu.embed(GRAPH), atol=2e-3)


def test_no_nodes_have_no_predictions(either):
    fitted = NodeClassifier(hops=2, **WIDE, epochs=2, device="cuda").fit(GRAPH)
    assert fitted.predict(GRAPH, nodes=[]).shape == (0,)
    assert fitted.predict_proba(GRAPH, nodes=[]).shape == (0, 3)


def test_tokens_on_the_gpu_serve_the_cpu_too():
    store = hop_tokens(GRAPH, 2, device="cuda")
    source = StoredTokens(store, "cpu")
    np.testing.assert_array_equal(source.gather(torch.arange(150)), np.asarray(store))
    assert NodeClassifier(hops=2, encoding_dim=0, **WIDE, epochs=2, device="cpu").fit(GRAPH, tokens=store).best_epoch_
    with pytest.raises(IndexError):
        store[[150]]
    np.testing.assert_array_equal(store[::-1], np.asarray(store)[::-1])


def test_a_store_of_many_pieces_is_uploaded_whole(monkeypatch):
    block = np.random.default_rng(0).integers(0, 1000, (1001, 3, 5)).astype(np.uint16)
    monkeypatch.setattr(sources, "UPLOAD_BYTES", 7 * 30)
    uploaded = sources._upload(block, STORED["float16"], "cuda")
    np.testing.assert_array_equal(uploaded.cpu().view(torch.uint16).numpy(), block)


def test_a_run_goes_on_where_it_stopped(either, tmp_path):
    whole, _ = train_model(GRAPH, quick(**NOISE, device="cuda", epochs=6), folder=tmp_path / "whole")
    calls = []

    def stop(self, epoch, train=Trainer._train_epoch):
        calls.append(epoch)
        if epoch == 4 and len(calls) == 4:
            raise KeyboardInterrupt
        return train(self, epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_train_epoch", stop)
        patch.setattr("nagphormer.training.checkpoint.Checkpoints.due", True)
        with pytest.raises(KeyboardInterrupt):
            train_model(GRAPH, quick(**NOISE, device="cuda", epochs=6), folder=tmp_path / "part")
    resumed, _ = train_model(GRAPH, quick(**NOISE, device="cuda", epochs=6), folder=tmp_path / "part")
    assert [record["epoch"] for record in resumed.best.history] == [1, 2, 3, 4, 5, 6]
    for name, weight in weights_of(whole.best.model).items():
        torch.testing.assert_close(weights_of(resumed.best.model)[name], weight, rtol=0, atol=1e-5)


def test_a_limit_on_the_gpus_memory_is_kept_to(monkeypatch, capsys):
    monkeypatch.setattr(device, "_gpu_limit", None)
    before = device.gpu_memory("cuda")
    device.machine("cuda", "1GB")
    try:
        assert device.gpu_memory("cuda") <= 0.85 * 10**9 < before
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(2 * 10**9, dtype=torch.uint8, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
