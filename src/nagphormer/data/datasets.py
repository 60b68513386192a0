"""Graphs by name or path: the paper's data sets, any `.npz` file, any graph folder."""

import os
import tempfile
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

from nagphormer.cache import cache_folder
from nagphormer.data.download import check_download, download
from nagphormer.data.folder import MANIFEST, open_graph, read_name
from nagphormer.data.graph import Graph
from nagphormer.data.npz import Split, describe_splits, read_split, stored_splits
from nagphormer.data.readers import READERS, reader_of
from nagphormer.data.splits import budget_split, per_class_split, random_split
from nagphormer.errors import UserError, nearest
from nagphormer.files import writable

BUNDLED = Path(__file__).parent / "bundled"

SAME_GRAPH = {"amazon2m": "ogbn-products"}
"""Data sets whose graph is that of another, differently split."""

_RULES = {"random": random_split, "per_class": per_class_split, "budget": budget_split}


@dataclass(frozen=True)
class DataSet:
    """What a named data set must look like, so that a namesake or a damaged copy is noticed."""

    num_nodes: int
    num_edges: int
    """Undirected edges. The paper's table mixes conventions: its rows CoraFull to Physics, taken from DGL,
    count every edge twice, and its 238,163 for Photo is really 238,162."""
    num_features: int
    num_classes: int
    rule: str | None
    """How the paper splits it; None for the split that comes with the data."""
    num_loops: int = 0
    """Self-loops among `num_edges`, which a Graph does not keep."""


DATASETS = {
    "pubmed": DataSet(19_717, 44_324, 500, 3, "random"),
    "corafull": DataSet(19_793, 63_421, 8_710, 70, "random"),
    "computers": DataSet(13_752, 245_861, 767, 10, "random"),
    "photo": DataSet(7_650, 119_081, 745, 8, "random"),
    "cs": DataSet(18_333, 81_894, 6_805, 15, "random"),
    "physics": DataSet(34_493, 247_962, 8_415, 5, "random"),
    "aminer": DataSet(593_486, 6_217_004, 100, 18, "per_class"),
    "reddit": DataSet(232_965, 11_606_919, 602, 41, "per_class"),
    "amazon2m": DataSet(2_449_029, 61_859_140, 100, 47, "budget", num_loops=128),
    "cora": DataSet(2_708, 5_278, 1_433, 7, "random"),
    "citeseer": DataSet(3_327, 4_552, 3_703, 6, "random"),
    "dblp": DataSet(17_716, 52_867, 1_639, 4, "random"),
    "blogcatalog": DataSet(5_196, 171_743, 8_189, 6, "random"),
    "flickr": DataSet(7_575, 239_738, 12_047, 9, "random"),
    "ogbn-arxiv": DataSet(169_343, 1_157_799, 128, 40, None),
    "ogbn-products": DataSet(2_449_029, 61_859_140, 100, 47, None, num_loops=128),
}


def load_graph(
    name_or_path: str | os.PathLike[str],
    split: Split | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
) -> Graph:
    """Load a named data set, an `.npz` file or a graph folder.

    A name is looked up as `<name>.npz` in the folder that the environment variable NAGPHORMER_DATA gives, as
    `<name>.npz` or graph folder `<name>` in the cache (`~/.cache/nagphormer`, or what NAGPHORMER_CACHE names), and
    among the bundled graphs (cora); then it is downloaded into the cache with PyTorch Geometric. Any other `.npz`
    in NAGPHORMER_DATA loads by its name too. Write `./cora` for a folder of yours that is called like a data set.

    Args:
        name_or_path: such as `pubmed`, `data/my-graph.npz`, or the folder that `Graph.save` wrote.
        split: `random` (60/20/20), `public` (the split that comes with the data), `fixed` (the one 60/20/20
            split of recent papers), or the number of one of several stored splits. Default: random for the
            paper's small sets, the paper's rules for its large ones, else what is stored (number 0 of
            several), if anything.
        seed: of the splits that are drawn.
        allow_pickle: let a download be read from pickles (citeseer, pubmed).

    >>> load_graph("cora").num_nodes
    2708
    """
    if isinstance(split, Integral) and not isinstance(split, bool):
        split = int(split)  # NumPy's integers, too
    elif split is not None and split not in ("random", "public", "fixed"):
        raise UserError(f"unknown split {split!r}: use 'random', 'public', 'fixed' or the number of a stored split")
    if isinstance(name_or_path, str) and (name_or_path in DATASETS or _provided(name_or_path)):
        return _load_named(name_or_path, split, seed, allow_pickle)
    if not isinstance(name_or_path, str | os.PathLike):
        raise UserError(f"the name of a data set or a path is needed, not {name_or_path!r}")
    path = Path(name_or_path)
    if not path.exists():
        raise UserError(_not_found(name_or_path))
    graph = _open(path)
    if split is None and not graph.splits and graph.name in DATASETS and not _difference(graph, graph.name):
        split = DATASETS[graph.name].rule  # the data set itself, only not looked up by its name
    return _with_split(graph, path, split, seed)


def name_of(name_or_path: str | os.PathLike[str]) -> str | None:
    """The name that `load_graph` will give a graph; at most a manifest is read."""
    if isinstance(name_or_path, str) and (name_or_path in DATASETS or _provided(name_or_path)):
        return name_or_path
    path = Path(name_or_path)
    if path.is_dir() and (path / MANIFEST).is_file():
        return read_name(path)
    return path.stem if reader_of(path) else None


def _load_named(name: str, split: Split | None, seed: int, allow_pickle: bool) -> Graph:
    path = find(name) or find(SAME_GRAPH.get(name, name)) or _download(name, allow_pickle)
    graph = _open(path)
    if name in DATASETS:
        _check_counts(graph, name, path)
        split = DATASETS[name].rule if split is None else split
    return _with_split(graph.with_name(name), path, split, seed)


def _data_folder() -> Path | None:
    """The folder that NAGPHORMER_DATA names, or None when it is not set."""
    text = os.environ.get("NAGPHORMER_DATA")
    if not text:
        return None
    if not Path(text).is_dir():
        raise UserError(f"the environment variable NAGPHORMER_DATA is {text!r}, which is not a folder")
    return Path(text)


def _provided(name: str) -> Path | None:
    """The file of that name in NAGPHORMER_DATA, where there is one."""
    if Path(name).name != name or (folder := _data_folder()) is None:
        return None
    path = folder / f"{name}.npz"
    return path if path.is_file() else None


def find(name: str) -> Path | None:
    """The file or graph folder that a name stands for here, if there is one."""
    if path := _provided(name):
        return path
    cache = cache_folder()
    places = (cache / f"{name}.npz", cache / name / MANIFEST, BUNDLED / f"{name}.npz")
    found = next((path for path in places if path.is_file()), None)
    return found.parent if found is not None and found.name == MANIFEST else found


def _download(name: str, allow_pickle: bool) -> Path:
    """Download a data set and keep it as a graph folder in the cache; gives that folder."""
    source, cache = SAME_GRAPH.get(name, name), cache_folder()
    check_download(source, cache, allow_pickle)
    with writable(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{source}-", dir=cache) as root:
            graph = download(source, Path(root), cache).with_name(source)
            _check_counts(graph, source, "what was downloaded")
            graph.save(cache / source)
    return cache / source


def _open(path: Path) -> Graph:
    """The graph of a file or folder; of a file without any split yet."""
    if path.is_dir():
        if not (path / MANIFEST).is_file():
            raise UserError(f"{path} is not a graph folder: it has no {MANIFEST}.{_hint(path)}")
        return open_graph(path)
    reader = reader_of(path)
    if reader is None:
        known = " or ".join(each.suffix for each in READERS if each.suffix)
        raise UserError(
            f"{path} is neither an {known} file nor a graph folder: tables of edges and nodes are read by "
            f"read_tables, or by nagphormer import --edges {path} --out FOLDER"
        )
    return reader.read(path).with_name(path.stem)


def _hint(folder: Path) -> str:
    if (folder / "raw").is_dir():
        return " For a folder of the Open Graph Benchmark use read_ogb."
    if any(folder.glob("*.adj.sp.pkl")) or any(folder.glob("*_adj.npz")):
        return f" For files of GRAND+ run: nagphormer import --grand-plus {folder} --allow-pickle --out FOLDER"
    return ""


def _with_split(graph: Graph, path: Path, split: Split | None, seed: int) -> Graph:
    own = path.is_dir() or path.suffix != ".npz"  # the splits of an .npz file are not read yet
    stored: list[Split] = stored_splits(path) if not own else ["public"] if graph.splits else []
    if split is None:
        split = next((choice for choice in (0, "public") if choice in stored), None)
    if split in stored:
        assert split is not None
        return graph if own else graph.with_splits(**read_split(path, split))
    graph = graph.with_splits()
    if split is None:
        return graph
    if split in _RULES:
        return _RULES[str(split)](graph, seed=seed)
    elsewhere = ""
    if path.parent == BUNDLED and split == "public":
        elsewhere = "; for Planetoid's split take Planetoid's copy, from_pyg(Planetoid(folder, 'Cora'))"
    raise UserError(f"{path} has no split {split!r}: {describe_splits(stored)}{elsewhere}")


def _check_counts(graph: Graph, name: str, origin: object) -> None:
    difference = _difference(graph, name)
    if difference:
        raise UserError(
            f"{origin} is not the data set {name}: {difference}; is it another data set of that name, or damaged?"
        )


def _difference(graph: Graph, name: str) -> str:
    """How a graph differs from what the data set must be; empty when it does not."""
    known = DATASETS[name]
    wrong = [
        f"{getattr(graph, count):,} {count.removeprefix('num_')} instead of {getattr(known, count):,}"
        for count in ("num_nodes", "num_edges", "num_features", "num_classes")
        if getattr(graph, count) != getattr(known, count)
        and not (count == "num_edges" and graph.num_edges == known.num_edges - known.num_loops)
    ]
    return ", ".join(wrong)


def _not_found(name_or_path: str | os.PathLike[str]) -> str:
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or Path(text).name != text or reader_of(Path(text)):
        return f"{text} does not exist: is the path right?"
    folder = _data_folder()
    known = sorted({*DATASETS, *(path.stem for path in (folder.glob("*.npz") if folder else ()))})
    return f"there is no data set, file or folder {text!r}.{nearest(text, known)} Known are: {', '.join(known)}"
