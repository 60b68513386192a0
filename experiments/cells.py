"""One measured cell: a model on one data set with one seed, as a small JSON file."""

import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from nagphormer.config import TrainConfig
from nagphormer.files import new_file, write_json

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "numpy", "scipy", "numba", "triton", "torch-geometric", "scikit-learn")


def describe() -> dict[str, Any]:
    """Machine and versions."""
    import nagphormer

    versions = {"python": platform.python_version(), "nagphormer": nagphormer.__version__}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {"device": device, "versions": versions, "date": time.strftime("%Y-%m-%d")}


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` gives, with its seconds and peak memory in GB: of the GPU where there is one, else resident."""
    gpu = torch.cuda.is_available()
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
    """Write one cell, whole or not at all."""
    with new_file(RESULTS / table / f"{name}.json") as staging:
        write_json(staging, facts | describe())
