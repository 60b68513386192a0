"""The network under the tools of torch that record it: they see plain operators, for any number of nodes and hops."""

import pytest
import torch
from torch.export import Dim

from nagphormer import ModelConfig, NAGphormer

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's tools about themselves and each other
CASES = [(mode, linear) for mode in ("eval", "train") for linear in (0, 4)]


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch.manual_seed(0)
    torch._dynamo.reset()


def network(mode="eval", linear=0):
    """With dropout of every kind; with a companion it reads four tokens of a node."""
    shape = {"input_dim": 7, "num_classes": 3, "hidden_dim": 8, "num_heads": 2, "num_layers": 2}
    rates = {"dropout": 0.1, "attention_dropout": 0.1, "feature_dropout": 0.1}
    model = NAGphormer(ModelConfig(**shape, **rates, linear_tokens=linear))
    with torch.no_grad():
        for weight in model.parameters():  # so that all parts count
            weight.normal_(std=0.3)
    return model.train(mode == "train")


def shapes(linear):
    """Nodes and tokens of a node that are tried after recording five nodes of four tokens."""
    return [(9, 4), (1, 4)] if linear else [(9, 4), (1, 4), (5, 7), (3, 3)]


def check(recorded, model, linear, deterministic):
    """What was recorded answers as the network does; in training at least in shape."""
    for num_nodes, num_tokens in shapes(linear):
        tokens = torch.randn(num_nodes, num_tokens, 7)
        scores = recorded(tokens)
        assert scores.shape == (num_nodes, 3)
        if deterministic:
            torch.testing.assert_close(scores, model(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mode", "linear"), CASES)
def test_it_can_be_traced(mode, linear):
    model = network(mode, linear)
    traced = torch.jit.trace(model, (torch.randn(5, 4, 7),), check_trace=False)
    check(traced, model, linear, mode == "eval")


@pytest.mark.parametrize(("mode", "linear"), CASES)
def test_it_can_be_compiled_as_a_whole(mode, linear):
    model = network(mode, linear)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    check(compiled, model, linear, mode == "eval")
    compiled(torch.randn(5, 4, 7)).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize(("mode", "linear"), CASES)
def test_it_can_be_exported_for_any_number_of_nodes_and_hops(mode, linear):
    model = network(mode, linear)
    exported = torch.export.export(model, (torch.randn(5, 4, 7),), dynamic_shapes=any_size(linear))
    check(exported.module(), model, linear, mode == "eval")


def any_size(linear):
    """Any number of nodes; and of hops, where no companion has weights for each of them."""
    sizes = {0: Dim("nodes", min=1)}
    return {"tokens": sizes if linear else sizes | {1: Dim("tokens", min=3)}}


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_tensorboard_draws_it(mode, tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="needs tensorboard")
    with tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_graph(network(mode), torch.randn(5, 4, 7))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 1000


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("linear", [0, 4])
def test_it_can_be_written_as_onnx(dynamo, linear, tmp_path):
    pytest.importorskip("onnxscript", reason="needs onnx and onnxscript")
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    model, path = network(linear=linear), str(tmp_path / "model.onnx")
    names = {0: "nodes"} if linear else {0: "nodes", 1: "tokens"}
    sizes = {"dynamic_shapes": any_size(linear)} if dynamo else {"dynamic_axes": {"tokens": names}}
    torch.onnx.export(model, (torch.randn(5, 4, 7),), path, dynamo=dynamo, input_names=["tokens"], **sizes)
    session = runtime.InferenceSession(path)
    run = lambda tokens: torch.from_numpy(session.run(None, {"tokens": tokens.numpy()})[0])  # noqa: E731
    check(run, model, linear, deterministic=True)


@pytest.mark.parametrize("dynamo", [True, False])
def test_it_can_be_written_as_onnx_for_training(dynamo, tmp_path):
    pytest.importorskip("onnxscript", reason="needs onnx and onnxscript")
    kept = {} if dynamo else {"training": torch.onnx.TrainingMode.TRAINING}
    path = tmp_path / "model.onnx"
    torch.onnx.export(network("train"), (torch.randn(5, 4, 7),), str(path), dynamo=dynamo, **kept)
    assert path.stat().st_size > 1000


def test_recorded_dropout_keeps_the_rate():
    model = network("train")
    traced = torch.jit.trace(model.dropout, (torch.ones(3),), check_trace=False)
    out = traced(torch.ones(100_000))
    assert (out == 0).float().mean() == pytest.approx(0.1, abs=0.01)
    torch.testing.assert_close(out.max(), torch.tensor(1 / 0.9))
