"""The GPU against the CPU; where there is none, only what also runs without one."""

import numpy as np
import pytest
import torch
from reference import isolated, path_graph, random_graph, ring_graph, star_graph, union

from nagphormer import from_scipy, hop_tokens, progress, synthetic_graph
from nagphormer.tokens import cpu, gpu, hop2token, job, laplacian, store
from nagphormer.tokens.engine import LANES
from nagphormer.tokens.laplacian import solve

DEVICE = "cuda"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_triton = pytest.mark.skipif(gpu.triton is None, reason="needs Triton, which this build of torch lacks")
torch_calls_csr_beta = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
TOLERANCE = {torch.float16: 2e-3, torch.float32: 1e-5}


def random_factor(num_nodes):
    return np.random.default_rng(1).uniform(0.1, 1, num_nodes).astype(np.float32)


def random_slice(num_nodes, width, kind):
    y = np.random.default_rng(0).standard_normal((num_nodes, width)).astype(np.float32)
    return torch.from_numpy(y).to(kind)


def on_cpu(graph, y, loop):
    out = torch.empty_like(y)
    cpu.NeighborSum(graph, random_factor(graph.num_nodes), loop)(y, out)
    return out


# torch's CSR product, the fallback where there is no Triton, also runs on the CPU


@torch_calls_csr_beta
@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loop", [False, True])
def test_the_fallback_equals_the_cpu_kernel(kind, weighted, loop, monkeypatch):
    monkeypatch.setattr(gpu, "triton", None)
    graph, y = random_graph(80, 1, weighted=weighted), random_slice(80, 3 * LANES, kind)
    out = torch.empty_like(y)
    gpu.NeighborSum(graph, random_factor(80), loop, "cpu")(y, out)
    torch.testing.assert_close(out, on_cpu(graph, y, loop), rtol=TOLERANCE[kind], atol=TOLERANCE[kind])


@torch_calls_csr_beta
def test_the_fallback_does_not_overflow_float16_before_the_factor():
    graph = star_graph(50)
    sums = gpu.NeighborSum(graph, (1 / (graph.degrees + 1)).astype(np.float32), True, "cpu")
    average = sums._sparse_product(torch.full((51, LANES), 30_000, dtype=torch.float16))
    torch.testing.assert_close(average.float(), torch.full((51, LANES), 30_000.0), rtol=1e-3, atol=0)


@pytest.mark.gpu
@needs_gpu
@needs_triton
@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("width", [16, 48, 128, 160])
def test_triton_sums_equal_those_of_the_cpu(kind, weighted, loop, width):
    graph, y = random_graph(300, 1, seed=2, weighted=weighted), random_slice(300, width, kind)
    y_on_gpu = y.to(DEVICE)
    out = torch.full_like(y_on_gpu, torch.nan)
    gpu.NeighborSum(graph, random_factor(300), loop, DEVICE)(y_on_gpu, out)
    torch.testing.assert_close(out.cpu(), on_cpu(graph, y, loop), rtol=TOLERANCE[kind], atol=TOLERANCE[kind])


@pytest.mark.gpu
@needs_gpu
@needs_triton
@torch_calls_csr_beta
@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_fallback_equals_triton(kind, weighted, monkeypatch):
    graph, y = random_graph(300, 1, seed=2, weighted=weighted), random_slice(300, 64, kind).to(DEVICE)
    sums = gpu.NeighborSum(graph, random_factor(300), True, DEVICE)
    by_triton, by_torch = torch.full_like(y, torch.nan), torch.full_like(y, torch.nan)
    sums(y, by_triton)
    monkeypatch.setattr(gpu, "triton", None)
    sums(y, by_torch)
    torch.testing.assert_close(by_torch, by_triton, rtol=TOLERANCE[kind], atol=TOLERANCE[kind])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_rows_without_neighbors_and_hubs_are_summed(kind):
    adjacency = np.zeros((2001, 2001))
    adjacency[5, :1500] = 1
    graph, y = from_scipy(adjacency), random_slice(2001, 32, kind)
    out = torch.full_like(y, torch.nan).to(DEVICE)
    gpu.NeighborSum(graph, 1 / (graph.degrees + 1), True, DEVICE)(y.to(DEVICE), out)
    expected = torch.empty_like(y)
    cpu.NeighborSum(graph, 1 / (graph.degrees + 1), True)(y, expected)
    torch.testing.assert_close(out.cpu(), expected, rtol=TOLERANCE[kind], atol=TOLERANCE[kind])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("dtype", "accepted"), [("float16", 5e-4), ("bfloat16", 4e-3), ("float32", 1e-6)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("hops", [0, 1, 2, 5])
def test_hop_tokens_equal_those_of_the_cpu(dtype, accepted, weighted, hops):
    graph = random_graph(300, 40, seed=2, weighted=weighted)
    on_gpu, expected = (hop_tokens(graph, hops, dtype=dtype, device=device) for device in (DEVICE, "cpu"))
    assert on_gpu.manifest.column_exponents == expected.manifest.column_exponents
    np.testing.assert_array_equal(on_gpu[:][:, 0], expected[:][:, 0])
    for hop in range(hops + 1):
        error = np.linalg.norm(on_gpu[:][:, hop] - expected[:][:, hop]) / np.linalg.norm(expected[:][:, hop])
        assert error < accepted


@pytest.mark.gpu
@needs_gpu
def test_a_store_written_from_the_gpu_can_be_opened(tmp_path, monkeypatch):
    graph = random_graph(120, 150, seed=4)
    whole = hop_tokens(graph, 3, device=DEVICE)
    monkeypatch.setattr(store, "BLOCK_BYTES", 70 * 120 * 2)
    monkeypatch.setattr(hop2token, "GPU_PIECE_BYTES", 1)
    monkeypatch.setattr(hop2token, "gpu_memory", lambda _: 64 * 120 * 2 * 3 + 100_000)
    sliced = hop_tokens(graph, 3, out=tmp_path / "store", device=DEVICE)
    sliced.verify()
    assert len(sliced.blocks) == 3
    np.testing.assert_array_equal(sliced[:], whole[:])


@pytest.mark.gpu
@needs_gpu
def test_columns_of_any_size_keep_float16s_precision_on_the_gpu():
    graph = random_graph(300, 3, seed=2)
    graph = from_scipy(graph.adjacency(), graph.features * np.array([1e-5, 1, 1e5], np.float32))
    on_gpu, expected = hop_tokens(graph, 10, device=DEVICE)[:], hop_tokens(graph, 10, dtype="float32", device="cpu")[:]
    for column in range(3):
        error = np.linalg.norm(on_gpu[:, :, column] - expected[:, :, column])
        assert error < 1e-3 * np.linalg.norm(expected[:, :, column])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    "graph",
    [
        synthetic_graph(900, 4000, 0, 3),
        random_graph(300, 1, seed=2, weighted=True),
        union(path_graph(60), ring_graph(50), star_graph(20), isolated(7)),
    ],
    ids=["synthetic", "weighted", "components"],
)
def test_the_encoding_equals_that_of_the_cpu(graph):
    on_gpu, expected = solve(graph, 8, device=DEVICE), solve(graph, 12, device="cpu")
    assert on_gpu.num_trivial == expected.num_trivial
    np.testing.assert_allclose(on_gpu.eigenvalues, expected.eigenvalues[:8], atol=1e-5)
    residual = max(on_gpu.residuals.max(), expected.residuals.max())
    gaps = np.diff(expected.eigenvalues)[:8]
    cut = int(np.flatnonzero(gaps >= 100 * residual)[-1]) + 1
    cosines = np.linalg.svd(on_gpu.vectors[:, :cut].T @ expected.vectors[:, :cut], compute_uv=False)
    assert cosines.min() >= 0.99


@pytest.mark.gpu
@needs_gpu
def test_the_encoding_is_made_on_the_gpu_for_tokens():
    graph = synthetic_graph(500, 2000, 6, 3)
    tokens = hop_tokens(graph, 2, encoding_dim=4, device=DEVICE)
    assert tokens.shape == (500, 3, 10)
    np.testing.assert_allclose(np.linalg.norm(tokens[:][:, 0, 6:], axis=0), 1, rtol=1e-3)


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_is_used_where_there_is_one(monkeypatch):
    used = []
    monkeypatch.setattr(gpu.HopSlice, "run", lambda self, advance: used.append(self))
    hop_tokens(random_graph(), 2)
    assert used


@pytest.mark.gpu
@needs_gpu
@needs_triton
@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_long_rows_are_summed_in_parts(kind, weighted, monkeypatch):
    monkeypatch.setattr(gpu, "LONG", 8)
    graph, y = random_graph(300, 1, seed=2, weighted=weighted), random_slice(300, 160, kind)
    assert np.diff(graph.indptr).max() > 8
    out = torch.full_like(y, torch.nan).to(DEVICE)
    sums = gpu.NeighborSum(graph, random_factor(300), True, DEVICE)
    sums(y.to(DEVICE), out)
    torch.testing.assert_close(out.cpu(), on_cpu(graph, y, True), rtol=TOLERANCE[kind], atol=TOLERANCE[kind])
    again = torch.empty_like(out)
    sums(y.to(DEVICE), again)
    assert torch.equal(again, out)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("long", [4, 1024])
def test_a_step_of_a_recurrence_equals_that_of_the_cpu(long, monkeypatch):
    monkeypatch.setattr(gpu, "LONG", long)
    graph = random_graph(300, 1, seed=2)
    y, before = random_slice(300, 32, torch.float32), random_slice(300, 32, torch.float32).flip(0).contiguous()
    out, expected = torch.full_like(y, torch.nan).to(DEVICE), torch.empty_like(y)
    gpu.NeighborSum(graph, random_factor(300), False, DEVICE).recur(y.to(DEVICE), before.to(DEVICE), out, 1.5, -0.3)
    cpu.NeighborSum(graph, random_factor(300), False).recur(y, before, expected, 1.5, -0.3)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@needs_gpu
def test_a_graph_goes_through_a_small_gpu_in_slices_and_its_eigenvectors_through_the_cpu(monkeypatch, capsys):
    graph = random_graph(300, 160, seed=2)
    expected = hop_tokens(graph, 3, encoding_dim=2, device=DEVICE)[:]
    for module in (hop2token, job):
        monkeypatch.setattr(module, "GPU_PIECE_BYTES", 1)
        monkeypatch.setattr(module, "gpu_memory", lambda _: 64 * 300 * 2 * 3 + 30_000)
    monkeypatch.setattr(laplacian, "gpu_memory", lambda _: 0)
    monkeypatch.setattr(progress, "_plain_lines", True)
    store = hop_tokens(graph, 3, encoding_dim=2, device=DEVICE)
    said = capsys.readouterr().err
    assert "columns go through the GPU" in said
    assert "searched on the CPU" in said
    assert not store.on_gpu
    np.testing.assert_array_equal(store[:][:, :, :160], expected[:, :, :160])
    np.testing.assert_allclose(np.abs(store[:][:, :, 160:]), np.abs(expected[:, :, 160:]), atol=2e-3)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("error:the search for eigenvectors ended")
def test_eigenvectors_are_exact_where_matrices_are_multiplied_in_tf32():
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        found = solve(ring_graph(1000), 10, device=DEVICE)
    finally:
        torch.set_float32_matmul_precision(precision)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(10), atol=1e-5)


@pytest.mark.gpu
@needs_gpu
@needs_triton
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [7, 100, 1500])
def test_tokens_are_taken_scaled_and_padded(kind, width):
    store, scales = torch.randn(30, 3, width).to("cuda", kind), torch.rand(width + 5).cuda()
    nodes = torch.tensor([3, 29, 0, 3]).cuda()
    out = torch.full((4, 3, width + 9), torch.nan, device="cuda")
    gpu.take(store, nodes, scales, out, first=5)
    torch.testing.assert_close(out[:, :, 5 : width + 5], store[nodes].float() * scales[5:], rtol=0, atol=0)
    assert (out[:, :, width + 5 :] == 0).all()
    assert out[:, :, :5].isnan().all()
