"""The one folder for what can be had again: downloaded graphs, and tokens that training made for itself."""

import json
import os
import re
import shutil
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

TOKENS = "tokens"
"""Its subfolder with token stores, a folder for each name of a graph."""
SETTINGS = ("hops", "encoding_dim", "feature_scaling", "dtype")
"""What a token store is told apart by."""


@dataclass(frozen=True)
class Entry:
    """Something in the cache."""

    path: Path
    kind: Literal["tokens", "graph"]
    graph: str
    settings: dict[str, Any]
    """Of the tokens."""
    num_bytes: int
    written: date


def cache_folder() -> Path:
    """Where downloaded data sets and tokens are kept; the environment variable NAGPHORMER_CACHE names another."""
    named = os.environ.get("NAGPHORMER_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nagphormer"


def tokens_in_cache(name: str, graph: str | None) -> Path:
    """Where a token store is kept: where it lies, whatever its graph was called then, else under its graph's name."""
    stores = cache_folder() / TOKENS
    found = next(stores.glob(f"*/{name}"), None)
    return found or stores / (re.sub(r"[^\w-]+", "_", graph or "") or "unnamed") / name


def can_be_written() -> bool:
    """Whether files can be made in the cache."""
    folder = cache_folder().absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK)


def entries() -> list[Entry]:
    """What lies in the cache: tokens first, then graphs."""
    cache = cache_folder()
    stores, graphs = (sorted(cache.glob(pattern)) for pattern in (f"{TOKENS}/*/*/manifest.json", "*/graph.json"))
    kept = [_entry(path, "tokens", path.parent.parent.name) for path in stores]
    return kept + [_entry(path, "graph", path.parent.name) for path in graphs]


def remove(found: list[Entry]) -> None:
    """Remove entries, and folders that are empty then."""
    for entry in found:
        shutil.rmtree(entry.path, ignore_errors=True)
        if entry.kind == "tokens" and entry.path.parent.is_dir() and not any(entry.path.parent.iterdir()):
            entry.path.parent.rmdir()


def _entry(manifest: Path, kind: Literal["tokens", "graph"], graph: str) -> Entry:
    folder = manifest.parent
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError:  # damaged: listed all the same, to be removed
        content = {}
    settings = {name: content[name] for name in SETTINGS if kind == "tokens" and name in content}
    num_bytes = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return Entry(folder, kind, graph, settings, num_bytes, date.fromtimestamp(manifest.stat().st_mtime))
