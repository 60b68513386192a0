"""A training step on the CPU beside a plain re-statement of the paper's model, and the Physics step both ways.

    python benchmarks/train_cpu.py [--rounds 5]

First D=512, K=10, F=115, batch 2000: the re-statement in fp32 with a `DataLoader` over a `TensorDataset` and with a
vectorized gather, each step with its batch's assembly. Then Physics (D=128, K=5, 8,415 sparse features; its file is
looked up in NAGPHORMER_DATA): dense fp32 tokens against features projected first, and the peak memory of each in a
process of its own. Ratios are medians over alternating rounds, the rival's time by ours.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from measure import alternate, describe_machine, print_table, ratio, run_child
from restated import BATCH, SAME, Restated, RestatedStep
from torch.utils.data import DataLoader, TensorDataset

from nagphormer import Graph, NAGphormer, TrainConfig, hop_tokens, load_graph, synthetic_graph
from nagphormer.data.classes import Classes
from nagphormer.device import machine
from nagphormer.settings import Precision
from nagphormer.training.batches import TokenSource
from nagphormer.training.loop import Trainer
from nagphormer.training.plan import decide, shape_of
from nagphormer.training.sources import StoredTokens, token_source
from nagphormer.training.task import Task

HERE = machine("cpu")
FASTER: Precision = "bf16" if HERE.fast_bf16 else "fp32"
PHYSICS = replace(SAME, hidden_dim=128, hops=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory-of", choices=("dense", "projected"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        step = _physics_dense() if options.memory_of == "dense" else _physics_projected()
        for _ in range(3):
            step()
        return
    print(describe_machine())
    print(f"{torch.get_num_threads()} threads; {options.rounds} rounds\n")
    _plain_step(options.rounds)
    _physics_step(options.rounds)


def _plain_step(rounds: int) -> None:
    graph = _labeled(synthetic_graph(50_000, 500_000, 115, 47))
    store = hop_tokens(graph, SAME.hops, device="cpu")
    tokens, labels = torch.from_numpy(np.asarray(store)), torch.from_numpy(np.array(graph.labels))
    restated = RestatedStep(Restated(115, SAME.hidden_dim, 47))
    batches = _batches(len(tokens))
    loader = _endless(DataLoader(TensorDataset(tokens, labels), batch_size=BATCH, shuffle=True))

    def with_gather() -> None:
        nodes = next(batches)
        restated(tokens[nodes], labels[nodes])

    source = StoredTokens(store, "cpu")
    kinds = dict.fromkeys((FASTER, "fp32"))
    ours = {f"ours, {kind}": _trainer_step(graph, source, replace(SAME, precision=kind)) for kind in kinds}
    works: dict[str, Callable[[], object]] = {
        "DataLoader, no workers": lambda: restated(*next(loader)),
        "vectorized gather": with_gather,
        **ours,
        "our batch assembly alone": lambda: source.gather(next(batches)),
    }
    seconds = alternate(works, rounds)
    rates = {"fp32": _product_rate(torch.float32), "bf16": _product_rate(torch.bfloat16)}
    flops = 3 * 2 * BATCH * (SAME.hops + 1) * (8 * 512**2 + 115 * 512) - 2 * 2000 * 11 * 115 * 512
    fastest = next(iter(ours))
    print(f"A step with D=512, K=10, F=115, batch 2000: {flops / 1e9:.0f} GFLOP in its large products.")
    print(f"Measured product rate: fp32 {rates['fp32'] / 1e9:.0f}, bf16 {rates['bf16'] / 1e9:.0f} GFLOP/s\n")
    rows = []
    for name, times in seconds.items():
        median = statistics.median(times)
        rate = rates["bf16" if "bf16" in name else "fp32"]
        share = "–" if "assembly" in name else f"{flops / median / rate:.0%}"
        rows.append((name, f"{median * 1000:.1f} ms", f"{ratio(times, seconds[fastest]):.2f}×", share))
    print_table(("step", "median", f"time by {fastest}", "share of the product rate"), rows)
    assembly = ratio(seconds["our batch assembly alone"], seconds[fastest])
    print(f"\nBatch assembly is {assembly:.2%} of our step.\n")


def _physics_step(rounds: int) -> None:
    works: dict[str, Callable[[], object]] = {
        "dense tokens, fp32": _physics_dense(),
        "ours, projected first": _physics_projected(),
    }
    seconds = alternate(works, rounds)
    rows = []
    for (name, times), kind in zip(seconds.items(), ("dense", "projected"), strict=True):
        child = run_child([sys.executable, __file__, "--memory-of", kind])
        median, speed = statistics.median(times), ratio(times, seconds["ours, projected first"])
        rows.append((name, f"{median * 1000:.0f} ms", f"{speed:.2f}×", f"{child.memory.peak_rss / 1e9:.2f} GB"))
    print("A step on Physics, D=128, K=5, batch 2000")
    print_table(("step", "median", "time by ours", "peak RSS of a process"), rows)


def _physics_dense() -> Callable[[], object]:
    graph = load_graph("physics")
    (block,) = hop_tokens(graph, PHYSICS.hops, dtype="float32", device="cpu").blocks  # float32 is stored as it is
    tokens = torch.from_numpy(block)
    labels = torch.from_numpy(np.array(graph.labels))
    restated = RestatedStep(Restated(tokens.shape[2], PHYSICS.hidden_dim, graph.num_classes))
    batches = _batches(len(tokens))

    def step() -> None:
        nodes = next(batches)
        restated(tokens[nodes], labels[nodes])

    return step


def _physics_projected() -> Callable[[], object]:
    graph = load_graph("physics")
    config = replace(PHYSICS, project_first="always", precision=FASTER)
    plan = decide(graph, config, HERE)
    return _trainer_step(graph, token_source(graph, plan.tokens, plan.way, HERE.device), config)


def _trainer_step(graph: Graph, source: TokenSource, config: TrainConfig) -> Callable[[], object]:
    """A step of our own training, its batch drawn and assembled."""
    classes = Classes.of(graph)
    model = NAGphormer(shape_of(config, source.width, classes.num_classes, feature_dropout=0.0)).train()
    trainer = Trainer(model, source, Task(graph, classes, "cpu"), dict(graph.splits), config)
    batches = _batches(graph.num_nodes)

    def step() -> None:
        batch = next(batches)
        trainer._step(len(batch), list(source.batches(trainer._pieces(batch))))

    return step


def _batches(num_nodes: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    while True:
        yield from torch.randperm(num_nodes, generator=generator).split(BATCH)[:-1]


def _endless(loader: DataLoader) -> Iterator[list[torch.Tensor]]:
    while True:
        yield from loader


def _labeled(graph: Graph) -> Graph:
    nodes = np.arange(graph.num_nodes)
    return graph.with_splits(train=nodes[: len(nodes) // 2], val=nodes[len(nodes) // 2 :])


def _product_rate(kind: torch.dtype) -> float:
    """Operations a second of a matrix product of the step's shape, the best of ten."""
    left, right = torch.randn(5500, 512).to(kind), torch.randn(512, 1024).to(kind)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - start)
    return 2 * 5500 * 512 * 1024 / best


if __name__ == "__main__":
    main()
