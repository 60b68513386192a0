"""Everything on one GPU, each figure beside its floor, on a graph of Amazon2M's size that is generated on the spot.

    python benchmarks/gpu.py

A floor is what the card could do if nothing else counted: the bytes that must move over the measured copy bandwidth, or
the operations of the large products over the measured rate of a large product. The whole pipeline runs in processes of
its own with empty compile caches, once with all of the card and once with 8 GB of it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import describe_machine, print_table
from restated import SAME, Restated, RestatedStep
from torch.nn import functional

from nagphormer import (
    Graph,
    NAGphormer,
    NodeClassifier,
    hop_tokens,
    load_graph,
    per_class_split,
    progress,
    synthetic_graph,
)
from nagphormer.data.datasets import DATASETS
from nagphormer.device import machine
from nagphormer.inference.predict import decisions
from nagphormer.model import ops
from nagphormer.model.encoder import SelfAttention
from nagphormer.tokens import laplacian
from nagphormer.tokens.engine import LANES, engine, round_up
from nagphormer.tokens.normalization import loop_degrees
from nagphormer.training.loop import Trainer, kernel_shape
from nagphormer.training.plan import decide
from nagphormer.training.run import Member, Run, Subject
from nagphormer.training.sources import StoredTokens
from nagphormer.training.task import Task

SIZE = DATASETS["amazon2m"]
WIDTH = SIZE.num_features + 3
CONFIG = replace(SAME, feature_scaling="none", precision="bf16", epochs=2000)
TRAINED_NODES = 200_000
COLD_NODES, COLD_EPOCHS = 20_000, (100, 400)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipeline", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--gpu-memory", help=argparse.SUPPRESS)
    parser.add_argument("--cold-epochs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--repaid", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pipeline:
        _pipeline(options.pipeline, options.begun, options.gpu_memory)
        return
    if options.cold_epochs:
        _cold(options.cold_epochs, options.repaid)
        return
    print(f"{torch.cuda.get_device_name()}; {describe_machine()}\n")
    bandwidth, rate = _bandwidth(), _product_rate()
    print(f"measured: copies {bandwidth / 1e12:.2f} TB/s, products in bf16 {rate / 1e12:.0f} TFLOP/s\n", flush=True)
    graph = synthetic_graph(SIZE.num_nodes, SIZE.num_edges, SIZE.num_features, SIZE.num_classes)
    print(f"{graph.num_nodes:,} nodes, {len(graph.indices):,} entries, longest row {np.diff(graph.indptr).max():,}\n")
    rows = [_hop(graph, bandwidth), _eigenvectors(graph)]
    store = hop_tokens(graph, CONFIG.hops, device="cuda")
    rows += _learning(graph, store, rate)
    print_table(("work", "measured", "target", "floor"), rows)
    print("\nAttention of one layer, projections included, forward and backward, batch 2000:")
    print_table(("form", "milliseconds"), _attentions())
    del store
    torch.cuda.empty_cache()
    print(flush=True)
    with tempfile.TemporaryDirectory() as folder:
        per_class_split(graph).save(Path(folder) / "graph")
        del graph
        for memory in (None, "8GB"):
            _print_pipeline(Path(folder) / "graph", memory)
    _print_cold()


def _hop(graph: Graph, bandwidth: float) -> tuple[str, ...]:
    width = round_up(WIDTH, LANES)
    sums = engine("cuda").NeighborSum(graph, 1 / loop_degrees(graph), loop=True, device="cuda")
    y = torch.randn(graph.num_nodes, width, device="cuda").half()
    out = torch.empty_like(y)
    seconds = _seconds(lambda: sums(y, out))
    floor = ((len(graph.indices) + graph.num_nodes) * width * 2 + graph.indices.nbytes) / bandwidth
    return f"one hop, F={WIDTH}, float16", f"{seconds * 1e3:.1f} ms", "≤ 13 ms", f"{floor * 1e3:.1f} ms"


def _eigenvectors(graph: Graph) -> tuple[str, ...]:
    start = time.perf_counter()
    found = laplacian.solve(graph, 16, device="cuda")
    seconds = time.perf_counter() - start
    excess = (found.residuals / (1e-3 * np.maximum(found.eigenvalues, 1e-2))).max()
    what = f"16 eigenvectors, {found.num_products} products, residual {excess:.2f} of the accepted"
    return what, f"{seconds:.1f} s", "≤ 5 s", "–"


def _learning(graph: Graph, store: Any, rate: float) -> list[tuple[str, ...]]:
    """Rates of training epochs and of inference on all nodes, and of the plain re-statement beside them."""
    nodes = np.random.default_rng(0).permutation(graph.num_nodes)
    graph = graph.with_splits(train=nodes[:TRAINED_NODES], val=nodes[TRAINED_NODES : TRAINED_NODES + 1000])
    per_node = 2 * (CONFIG.hops + 1) * (8 * 512**2 + store.shape[2] * 512)  # of the large products, forward
    source, subject, here = StoredTokens(store, "cuda"), Subject.of(graph, store), machine("cuda")
    task = Task(graph, subject.classes, "cuda")
    rows: list[tuple[str, ...]] = []
    for batch_size, target in ((2000, "≥ 1,200,000"), (8000, "–")):
        config = replace(CONFIG, batch_size=batch_size)
        plan = decide(graph, config, here, store)
        model = NAGphormer(plan.model)
        trainer = Trainer(model, source, task, dict(graph.splits), config)
        with ops.enough_work(trainer._work(), kernel_shape(config, source, plan.precision)):
            seconds = _seconds(partial(trainer._train_epoch, 1), rounds=5)
        floor = f"{rate / (3 * per_node):,.0f}"
        rows.append((f"training, batch {batch_size}", f"{TRAINED_NODES / seconds:,.0f} nodes/s", target, floor))
    run = Run(**vars(subject), members=(Member(plan, model, [], {}),))
    everyone = np.arange(graph.num_nodes)
    seconds = _seconds(lambda: decisions(run, source, everyone), rounds=5)
    speed = f"{graph.num_nodes / seconds:,.0f} nodes/s"
    rows.append(("inference, labels in host memory", speed, "≥ 6,000,000", f"{rate / per_node:,.0f}"))
    step = RestatedStep(Restated(source.width, CONFIG.hidden_dim, graph.num_classes).cuda())
    batch = torch.from_numpy(nodes[:2000]).cuda()
    seconds = _seconds(lambda: step(source.gather(batch), task.labels[batch]), rounds=20)
    rows.append(("re-statement in fp32, tokens on the GPU, batch 2000", f"{2000 / seconds:,.0f} nodes/s", "–", "–"))
    return rows


def _attentions() -> list[tuple[str, ...]]:
    """Our kernel, plain products and torch's fused attention."""
    attention = SelfAttention(CONFIG.hidden_dim, CONFIG.num_heads, CONFIG.attention_dropout).cuda()
    hidden = torch.randn(2000, CONFIG.hops + 1, CONFIG.hidden_dim, device="cuda", requires_grad=True)

    def of_torch(hidden: torch.Tensor) -> torch.Tensor:
        query, key, value = attention.project(hidden).unflatten(2, (3, CONFIG.num_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=CONFIG.attention_dropout)
        return attention.out(mixed.transpose(1, 2).flatten(2))

    def step(form: Callable[[torch.Tensor], torch.Tensor]) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            form(hidden).sum().backward()

    rows: list[tuple[str, ...]] = []
    for name, form, values in (
        ("our kernel", attention, np.inf),
        ("plain products", attention, 0),
        ("scaled_dot_product_attention", of_torch, 0),
    ):
        with ops.enough_work(values, name):
            rows.append((name, f"{1e3 * _seconds(partial(step, form)):.3f}"))
    return rows


def _print_cold() -> None:
    """How much training repays compiling the kernels."""
    compiled, plain = (
        np.array([_in_new_process("--cold-epochs", epochs, "--repaid", bound)["seconds"] for epochs in COLD_EPOCHS])
        for bound in (0, np.inf)
    )
    print(f"Training on {COLD_NODES:,} nodes in a new process with empty compile caches:")
    rows = zip(COLD_EPOCHS, compiled, plain, strict=True)
    print_table(
        ("epochs", "kernels compiled", "plain modules"), [(f"{e}", f"{c:.1f} s", f"{p:.1f} s") for e, c, p in rows]
    )
    slope, cost = np.polyfit(COLD_EPOCHS, compiled - plain, 1)
    values = -cost / slope * COLD_NODES * (CONFIG.hops + 1) * CONFIG.hidden_dim
    print(f"\nCompiling costs {cost:.1f} s, repaid after {values:.1e} hidden values; used from {ops.REPAID:.0e} on")


def _cold(epochs: int, repaid: float) -> None:
    ops.REPAID = repaid
    graph = synthetic_graph(2 * COLD_NODES, 20 * COLD_NODES, SIZE.num_features, SIZE.num_classes)
    nodes = np.arange(graph.num_nodes)
    graph = graph.with_splits(train=nodes[:COLD_NODES], val=nodes[COLD_NODES : COLD_NODES + 1000])
    store = hop_tokens(graph, CONFIG.hops, encoding_dim=3, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    classifier = NodeClassifier(recipe="paper-amazon2m", num_heads=8, precision="bf16", epochs=epochs, patience=epochs)
    classifier.fit(graph, tokens=store)
    torch.cuda.synchronize()
    print(json.dumps({"seconds": time.perf_counter() - start}))


def _in_new_process(*options: object) -> dict[str, Any]:
    """What this file prints last with some options, in a process with empty compile caches."""
    with tempfile.TemporaryDirectory() as caches:
        names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR", "CUDA_CACHE_PATH")
        environment = os.environ | {name: f"{caches}/{name}" for name in names}
        command = [sys.executable, __file__, *map(str, options)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(ran.stderr)
    return json.loads(ran.stdout.splitlines()[-1]) | {"said": ran.stderr}


def _print_pipeline(folder: Path, memory: str | None) -> None:
    limit = ["--gpu-memory", memory] if memory else []
    facts = _in_new_process("--pipeline", folder, "--begun", time.time(), *limit)
    print(facts["said"], file=sys.stderr)
    total = sum(facts["stages"].values())
    print(f"Everything in a new process{f', {memory} of the GPU' if memory else ' (target ≤ 20 s)'}: {total:.1f} s")
    print_table(("stage", "seconds"), [(name, f"{seconds:.2f}") for name, seconds in facts["stages"].items()])
    said = "".join(f"; {line.strip()}" for line in facts["said"].splitlines() if "GPU" in line)
    print(f"\nGPU memory reserved at most {facts['peak'] / 1e9:.1f} GB; test accuracy {facts['accuracy']:.4f}{said}")
    print(flush=True)


def _pipeline(folder: Path, begun: float, memory: str | None) -> None:
    """Graph folder to the labels of all nodes, as JSON with the seconds of each stage."""
    stages = {"start-up": time.time() - begun}
    clock = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        torch.cuda.synchronize()
        stages[name], clock = time.perf_counter() - clock, time.perf_counter()

    progress.configure(quiet=False)
    machine("cuda", memory)
    torch.cuda.init()
    lap("CUDA's start")
    graph = load_graph(folder)
    lap("graph opened")
    solve, searched = laplacian.solve, []

    def timed_solve(*arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        found = solve(*arguments, **named)
        searched.append(time.perf_counter() - begin)
        return found

    laplacian.solve = timed_solve
    store = hop_tokens(graph, 10, encoding_dim=3)
    lap("tokens of 10 hops")
    stages["encoding"] = searched[0]
    stages["tokens of 10 hops"] -= searched[0]
    classifier = NodeClassifier(recipe="paper-amazon2m", precision="bf16", epochs=200, patience=200)
    classifier.fit(graph, tokens=store)
    lap(f"200 epochs on {len(graph.splits['train']):,} nodes")
    labels = classifier.predict(graph)
    lap(f"{len(labels):,} labels")
    test = graph.splits["test"]
    accuracy = float((labels[test] == classifier.classes_[np.asarray(graph.labels)[test]]).mean())
    print(json.dumps({"stages": stages, "peak": torch.cuda.max_memory_reserved(), "accuracy": accuracy}))


def _seconds(work: Callable[[], object], rounds: int = 10) -> float:
    """Median seconds of some work, with the GPU's share of it done; two rounds warm up."""
    times = []
    for _ in range(rounds + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def _bandwidth() -> float:
    """Bytes a second read and written while copying 4 GB."""
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / _seconds(lambda: target.copy_(source))


def _product_rate() -> float:
    """Operations a second of a large product in bf16."""
    left, right = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    return 2 * 8192**3 / _seconds(lambda: left @ right)


if __name__ == "__main__":
    main()
