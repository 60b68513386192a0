"""One hop of propagation, and a whole small preparation, beside the ways others do it.

    python benchmarks/propagate.py [--sizes physics reddit aminer amazon2m] [--rounds 5]

Graphs are synthetic, of the sizes of real ones. Every rival gets Â with self-loops, coalesced, warm, in float32, on
the same threads; PyG's SIGN is timed by the product that its loop repeats. Ours is timed in float16 and float32.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measure import alternate, copy_bandwidth, describe_machine, print_table, ratio, run_child

from nagphormer import Graph, synthetic_graph
from nagphormer.device import cache_bytes
from nagphormer.tokens.cpu import NeighborSum, aligned_empty
from nagphormer.tokens.normalization import loop_degrees
from nagphormer.tokens.slices import plan_slices

SIZES = {
    "physics": (34_493, 247_962, 512),
    "reddit": (232_965, 11_606_919, 602),
    "aminer": (593_486, 6_217_004, 100),
    "amazon2m": (2_449_029, 61_859_140, 115),
}
RIVALS = ("torch COO", "PyG SIGN", "torch CSR", "SciPy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prepare", choices=("ours", "reference", "pyg"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse")  # torch's notes that sparse tensors are new
    if options.prepare:
        print(json.dumps(PREPARE[options.prepare](options.folder)))
        return
    print(describe_machine())
    bandwidth = copy_bandwidth()
    print(f"copy bandwidth {bandwidth / 1e9:.1f} GB/s; {torch.get_num_threads()} threads; {options.rounds} rounds\n")
    rows = [_one_hop(name, shuffle, options.rounds, bandwidth) for name in options.sizes for shuffle in (True, False)]
    print("One hop: our seconds, share of copy bandwidth that neighbor rows are read at, and rivals' time by ours")
    ours = ("ours fp16", "share", "ours fp32", "share")
    pairs = [f"{rival} / {kind}" for kind in ("fp16", "fp32") for rival in RIVALS]
    print_table(("graph", "order", *ours, *pairs), rows)
    print("\nGraph folder to hop tokens, AMiner size, K=3 (reference and PyG keep them in memory, float32)")
    _whole_preparation(options.rounds)


def _one_hop(name: str, shuffle: bool, rounds: int, bandwidth: float) -> list[str]:
    num_nodes, num_edges, width = SIZES[name]
    graph = synthetic_graph(num_nodes, num_edges, 0, 10, shuffle=shuffle)
    x = np.random.default_rng(0).standard_normal((num_nodes, width), np.float32)
    works: dict[str, Callable[[], object]] = {"fp16": _ours(graph, x, np.float16), "fp32": _ours(graph, x, np.float32)}
    works |= _rivals(graph, torch.from_numpy(x))
    seconds = alternate(works, rounds)
    row = [name, "shuffled" if shuffle else "community"]
    for kind, itemsize in (("fp16", 2), ("fp32", 4)):
        median = statistics.median(seconds[kind])
        gathered = (len(graph.indices) + num_nodes) * width * itemsize
        row += [f"{median:.3f} s", f"{gathered / median / bandwidth:.0%}"]
    for kind in ("fp16", "fp32"):
        row += [f"{ratio(seconds[rival], seconds[kind]):.1f}×" for rival in RIVALS]
    print(row, file=sys.stderr)
    return row


def _ours(graph: Graph, x: np.ndarray, dtype: type) -> Callable[[], None]:
    """One hop as `hop_tokens` does it, tile by tile."""
    itemsize = np.dtype(dtype).itemsize
    plan = plan_slices(graph.num_nodes, x.shape[1], 1, itemsize, 10**11, may_spill=False, cache=cache_bytes())
    sums = NeighborSum(graph, 1 / loop_degrees(graph), loop=True)
    tiles = aligned_empty((plan.width // plan.tile, graph.num_nodes, plan.tile), dtype)
    out = aligned_empty(tiles.shape, dtype)
    tiles[:] = out[:] = 0
    for column in range(x.shape[1]):
        tiles[column // plan.tile, :, column % plan.tile] = x[:, column]

    def hop() -> None:
        for source, target in zip(tiles, out, strict=True):
            sums(source, target)

    return hop


def _rivals(graph: Graph, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    import scipy.sparse as sp
    from torch_geometric import EdgeIndex

    root = (1 / np.sqrt(loop_degrees(graph))).astype(np.float32)
    matrix = sp.csr_array(graph.adjacency() + sp.eye_array(graph.num_nodes, dtype=np.float32, format="csr"))
    matrix.data = root[np.repeat(np.arange(graph.num_nodes), np.diff(matrix.indptr))] * root[matrix.indices]
    values = torch.from_numpy(matrix.data)
    csr = torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int64)), torch.from_numpy(matrix.indices.astype(np.int64)), values
    )
    coo = csr.to_sparse_coo().coalesce()
    # SIGN sorts its edges by target and multiplies by the transpose; the matrix is symmetric
    edges, order = EdgeIndex(coo.indices(), sparse_size=tuple(coo.shape)).sort_by("col")
    weights = coo.values()[order]
    array = x.numpy()
    return {
        "torch COO": lambda: coo @ x,
        "PyG SIGN": lambda: edges.matmul(x, weights, transpose=True),
        "torch CSR": lambda: csr @ x,
        "SciPy": lambda: matrix @ array,
    }


def _whole_preparation(rounds: int) -> None:
    num_nodes, num_edges, width = SIZES["aminer"]
    with tempfile.TemporaryDirectory() as folder:
        synthetic_graph(num_nodes, num_edges, width, 18).save(f"{folder}/graph")
        results: dict[str, list[tuple[float, int, int]]] = {"ours": [], "reference": [], "pyg": []}
        for _ in range(rounds):
            for way, found in results.items():
                command = [sys.executable, __file__, "--prepare", way, "--folder", folder]
                child = run_child(command)
                memory = child.memory
                found.append((json.loads(child.stdout)["seconds"], memory.peak_anonymous, memory.peak_rss))
    fast = [seconds for seconds, *_ in results["ours"]]
    rows = []
    for way, found in results.items():
        seconds = statistics.median(entry[0] for entry in found)
        anonymous, rss = (max(entry[i] for entry in found) / 1e9 for i in (1, 2))
        slower = ratio([entry[0] for entry in found], fast[: len(found)])
        rows.append((way, f"{seconds:.1f} s", f"{anonymous:.2f} GB", f"{rss:.2f} GB", f"{slower:.1f}×"))
    print_table(("way", "seconds", "peak anonymous", "peak RSS", "time by ours"), rows)


def _prepare_ours(folder: Path) -> dict[str, float]:
    from nagphormer import hop_tokens, load_graph

    graph = load_graph(folder / "graph")
    with tempfile.TemporaryDirectory(dir=folder) as out:
        start = time.perf_counter()
        hop_tokens(graph, hops=3, out=f"{out}/tokens", device="cpu")
        return {"seconds": time.perf_counter() - start}


def _prepare_reference(folder: Path) -> dict[str, float]:
    """The reference way: a coalesced COO product for every hop, tokens filled node by node."""
    from nagphormer import load_graph

    graph = load_graph(folder / "graph")
    start = time.perf_counter()
    features = torch.from_numpy(np.array(graph.features))
    coo = _normalized_coo(graph)
    tokens = torch.empty(graph.num_nodes, 4, features.shape[1])
    for hop in range(4):
        for node in range(graph.num_nodes):
            tokens[node, hop] = features[node]
        features = coo @ features
    return {"seconds": time.perf_counter() - start}


def _prepare_pyg(folder: Path) -> dict[str, float]:
    from torch_geometric.data import Data
    from torch_geometric.transforms import SIGN
    from torch_geometric.utils import add_self_loops

    from nagphormer import load_graph

    graph = load_graph(folder / "graph")
    start = time.perf_counter()
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    edges = torch.from_numpy(np.stack([rows, np.asarray(graph.indices, np.int64)]))
    edges, _ = add_self_loops(edges, num_nodes=graph.num_nodes)
    data = SIGN(3)(Data(x=torch.from_numpy(np.array(graph.features)), edge_index=edges))
    torch.stack([data.x, data.x1, data.x2, data.x3], dim=1)
    return {"seconds": time.perf_counter() - start}


def _normalized_coo(graph: Graph) -> torch.Tensor:
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    nodes = np.arange(graph.num_nodes)
    ends = np.stack([np.concatenate([rows, nodes]), np.concatenate([graph.indices, nodes])])
    root = 1 / np.sqrt(loop_degrees(graph))
    values = (root[ends[0]] * root[ends[1]]).astype(np.float32)
    size = (graph.num_nodes, graph.num_nodes)
    return torch.sparse_coo_tensor(torch.from_numpy(ends), torch.from_numpy(values), size).coalesce()


PREPARE = {"ours": _prepare_ours, "reference": _prepare_reference, "pyg": _prepare_pyg}

if __name__ == "__main__":
    main()
