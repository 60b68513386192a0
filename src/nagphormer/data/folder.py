"""A graph as a folder of plain arrays: memory-mapped when opened, written whole or not at all."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer import __version__
from nagphormer.data.checks import SPLITS
from nagphormer.data.graph import Graph, arrays_of
from nagphormer.data.learned import Learned
from nagphormer.data.values import FeatureKind
from nagphormer.errors import UserError
from nagphormer.files import check_size, checksum, new_folder, read_json, write_json

FORMAT = 1
MANIFEST = "graph.json"
KEYS = ("name", "num_nodes", "num_features", "class_names", "fingerprint", "files")
IDS = "node_ids.arrow"


def save_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write `graph` as a folder of `.npy` files with a manifest."""
    arrays = arrays_of(graph)
    num_bytes = sum(array.nbytes for array in arrays.values()) + (0 if graph.ids is None else graph.ids.nbytes)
    with new_folder(path, num_bytes) as folder:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        if graph.ids is not None:
            write_ids(folder / IDS, graph.ids)
        write_manifest(folder, graph)


def write_manifest(folder: Path, graph: Graph) -> None:
    """Describe the arrays that lie in `folder`: sizes, checksums and the graph's fingerprint."""
    files = {file.name: file for file in sorted(folder.iterdir()) if file.name != MANIFEST}
    write_json(
        folder / MANIFEST,
        {
            "kind": "graph",
            "format": FORMAT,
            "name": graph.name,
            "num_nodes": graph.num_nodes,
            "num_edges": graph.num_edges,
            "num_features": graph.num_features,
            "num_classes": graph.num_classes,
            "class_names": graph.class_names,
            "feature_names": graph.feature_names,
            "feature_kind": None if graph.feature_kind is None else asdict(graph.feature_kind),
            "learned": None if graph.learned is None else asdict(graph.learned),
            "fingerprint": graph.fingerprint,
            "files": {name: {"bytes": file.stat().st_size, "sha256": checksum(file)} for name, file in files.items()},
            "versions": {"nagphormer": __version__},
        },
    )


def read_name(path: Path) -> str | None:
    """The name of the graph in a folder, where it has one."""
    return read_json(path / MANIFEST, "graph", FORMAT, KEYS)["name"]


def open_graph(path: str | os.PathLike[str]) -> Graph:
    """Open a graph folder without reading its arrays; sizes are checked, checksums by `verify_graph`."""
    folder = Path(path)
    manifest = read_json(folder / MANIFEST, "graph", FORMAT, KEYS)
    for name, entry in manifest["files"].items():
        check_size(folder / name, entry["bytes"])
    arrays = {name[:-4]: _map(folder / name) for name in manifest["files"] if name.endswith(".npy")}
    features: Any = arrays.get("features")
    if "features_data" in arrays:
        parts = tuple(arrays[f"features_{part}"] for part in ("data", "indices", "indptr"))
        features = sp.csr_array(parts, shape=(manifest["num_nodes"], manifest["num_features"]))
    graph = Graph(
        indptr=arrays["indptr"],
        indices=arrays["indices"],
        weights=arrays.get("weights"),
        features=features,
        labels=arrays.get("labels"),
        splits={split: arrays[f"split_{split}"] for split in SPLITS if f"split_{split}" in arrays},
        ids=read_ids(folder / IDS) if IDS in manifest["files"] else None,
        class_names=None if manifest["class_names"] is None else tuple(manifest["class_names"]),
        name=manifest["name"],
        folder=folder,
        feature_names=None if manifest.get("feature_names") is None else tuple(manifest["feature_names"]),
        learned=None if manifest.get("learned") is None else Learned.read(manifest["learned"]),
    )
    known = graph.__dict__  # what is known spares reading every array
    if manifest.get("feature_kind") is not None:
        known["feature_kind"] = FeatureKind(**manifest["feature_kind"])
    if "feature_kind" in manifest or features is None:  # 0.1.0 took the fingerprint of the arrays, not of their values
        known["fingerprint"] = manifest["fingerprint"]
    return graph


def verify_graph(path: str | os.PathLike[str]) -> None:
    """Read every file of a graph folder and compare it with the manifest's checksum."""
    folder = Path(path)
    for name, entry in read_json(folder / MANIFEST, "graph", FORMAT, KEYS)["files"].items():
        check_size(folder / name, entry["bytes"])
        if checksum(folder / name) != entry["sha256"]:
            raise UserError(f"{folder / name} is corrupt (checksum differs): make the folder {folder} again")


def _map(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}): make the folder {path.parent} again") from error


def write_ids(path: Path, ids: Any) -> None:
    """Write node ids as an Arrow file, which can be memory-mapped."""
    import pyarrow as pa

    table = pa.table({"id": ids})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_ids(path: Path) -> Any:
    """Node ids that `write_ids` wrote, memory-mapped."""
    import pyarrow as pa

    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()["id"].combine_chunks()
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is damaged ({error}): make the folder {path.parent} again") from error
