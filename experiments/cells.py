"""One measured cell: a model on one data set with one seed, as a small JSON file."""

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import nagphormer
from nagphormer.files import new_file, write_json
from nagphormer.settings import TrainConfig

RESULTS = Path(__file__).parent / "results"
SOURCES = (Path(__file__).parent, Path(nagphormer.__file__).parent)
PACKAGES = ("torch", "numpy", "scipy", "numba", "triton", "torch-geometric", "scikit-learn")


def fingerprint() -> str:
    """A hash of this project's code: cells that have the same were measured by the same code."""
    files = (path for folder in SOURCES for path in sorted(folder.rglob("*.py")))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]


def describe(device: str | None = None) -> dict[str, Any]:
    """Machine, versions and code."""
    versions = {"python": platform.python_version(), "nagphormer": nagphormer.__version__}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    processor = torch.cuda.get_device_name() if _on_gpu(device) else _processor()
    return {"device": processor, "versions": versions, "code": fingerprint(), "date": time.strftime("%Y-%m-%d")}


def circumstances(facts: list[dict[str, Any]]) -> str:
    """Machines, versions and dates of some cells, in words."""
    versions = listed(
        f"torch {each['versions']['torch']}, PyG {each['versions'].get('torch-geometric')}" for each in facts
    )
    dates = sorted({each["date"] for each in facts})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{listed(each['device'] for each in facts)}; {versions}; {when}"


def listed(values: Iterable[str]) -> str:
    """Different values, joined by *or*."""
    return " or ".join(sorted(set(values)))


def measured(work: Callable[[], dict[str, Any]], device: str | None = None) -> dict[str, Any]:
    """What `work` gives, with its seconds and peak memory in GB: of the GPU where it is used, else resident."""
    gpu = _on_gpu(device)
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # starts the peak anew
    start = time.perf_counter()
    facts = work()
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() if gpu else _peak_resident()
    return facts | {"seconds": round(seconds, 2), "peak_gb": round(peak / 1e9, 3)}


def _processor() -> str:
    """The CPU's model and how many of its cores are ours."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    cores = len(os.sched_getaffinity(0))
    return f"{next(models, platform.machine())}, {cores} core{'s' if cores > 1 else ''}"


def _on_gpu(device: str | None) -> bool:
    return torch.cuda.is_available() if device is None else device.startswith("cuda")


def _peak_resident() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def read_cell(table: str, name: str, config: TrainConfig) -> dict[str, Any] | None:
    """A cell that was measured before with the same settings, if there is one, and says so."""
    path = RESULTS / table / f"{name}.json"
    if not path.is_file():
        return None
    cell = json.loads(path.read_text(encoding="utf-8"))
    wanted = {key: value for key, value in asdict(config).items() if value not in (None, "auto")}
    if any(cell["config"].get(key) != value for key, value in wanted.items()):
        return None
    print(f"{name}: recorded on {cell['date']}, {cell['device']}", flush=True)
    return cell


def write_cell(table: str, name: str, facts: dict[str, Any]) -> None:
    """Write one cell of a table, with machine and versions."""
    write_facts(RESULTS / table / f"{name}.json", facts | describe())


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    """Write a cell's facts, whole or not at all."""
    with new_file(path) as staging:
        write_json(staging, facts)
