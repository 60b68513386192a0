"""What is told of a measured cell beside its accuracy: machine, versions, code, seconds and memory."""

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import nagphormer

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
    """What `work` gives, with its seconds and peak memory in GB: of the GPU where it is used, else resident.

    Where `work` tells its seconds and memory itself, since they are those of a part of it, they stand.
    """
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
    return {"seconds": round(seconds, 2), "peak_gb": round(peak / 1e9, 3)} | facts


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
