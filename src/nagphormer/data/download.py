"""Fetch a named data set with PyTorch Geometric's own code.

Beware of namesakes there: `Flickr` and `Reddit` of PyG are other graphs than the paper's, and `Planetoid`'s
Cora is not `CitationFull`'s, which the paper calls CoraFull.
"""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from nagphormer.data.graph import Graph
from nagphormer.data.npz import read_npz
from nagphormer.data.ogb import read_ogb
from nagphormer.data.pyg import from_pyg
from nagphormer.errors import MissingExtra, UserError

_RAW_NPZ = {
    "computers": ("Amazon", "Computers"),
    "photo": ("Amazon", "Photo"),
    "cs": ("Coauthor", "CS"),
    "physics": ("Coauthor", "Physics"),
    "corafull": ("CitationFull", "Cora"),
    "dblp": ("CitationFull", "DBLP"),
}
_PLANETOID = {"citeseer": "CiteSeer", "pubmed": "PubMed"}
_ATTRIBUTED = {"blogcatalog": "BlogCatalog", "flickr": "Flickr"}
_OGB = {"ogbn-arxiv": "arxiv", "ogbn-products": "products"}
_OGB_URL = "https://snap.stanford.edu/ogb/data/nodeproppred"


def check_download(name: str, cache: Path, allow_pickle: bool) -> None:
    """Refuse, with what to do instead, a data set that cannot be downloaded or only as pickles.

    Args:
        name: one of `load_graph`'s names.
        cache: the folder in which the data set would be found next time.
        allow_pickle: whether the user lets pickles be read.
    """
    if name == "aminer":
        raise UserError(
            f"aminer is not on this machine, and only GRAND+ offers it: unpack aminer.zip of "
            f"https://github.com/THUDM/GRAND-plus and run\n"
            f"  nagphormer import --grand-plus aminer --allow-pickle --out {cache / name}"
        )
    if name in _PLANETOID and not allow_pickle:
        raise UserError(
            f"{name} is not on this machine, and its download consists of pickles, which can run any code "
            f"while they are read: if you trust https://github.com/kimiyoung/planetoid, say "
            f"allow_pickle=True (on the command line --allow-pickle); or {_instead(name, cache)}"
        )


def download(name: str, root: Path, cache: Path) -> Graph:
    """Download a data set that `check_download` let pass into the folder `root`, and read it from there."""
    try:
        return _fetch(name, root)
    except ImportError as error:
        package = (error.name or "torch_geometric").partition(".")[0].replace("_", "-")
        wish = f"{name} is not on this machine: {_instead(name, cache)}\nOr let it be downloaded, which"
        if package != "torch-geometric":  # some of PyG's classes use pandas, which PyG does not install
            raise UserError(f"{wish} needs the package {package}: pip install {package}") from error
        raise MissingExtra(package, "pyg", wish) from error
    except Exception as error:  # whatever network, server and PyG can raise
        raise UserError(
            f"{name} could not be downloaded ({type(error).__name__}: {error}): check the network and try "
            f"again, or {_instead(name, cache)}"
        ) from error


def _instead(name: str, cache: Path) -> str:
    """What the user can do by hand."""
    if name in _OGB:
        code = f"from nagphormer import read_ogb; read_ogb('{_OGB[name]}').save('{cache / name}')"
        return f'unpack {_OGB_URL}/{_OGB[name]}.zip and run\n  python -c "{code}"'
    return f"put {name}.npz into {cache} or into the folder that NAGPHORMER_DATA names"


def _fetch(name: str, root: Path) -> Graph:
    if name in _OGB:
        return _fetch_ogb(name, root)
    datasets = import_module("torch_geometric.datasets")
    if name in _RAW_NPZ:
        class_name, set_name = _RAW_NPZ[name]
        # PyG turns counts into 0 and 1; the file it downloaded still has the counts
        files = getattr(datasets, class_name)(str(root), set_name).raw_paths
        return replace(read_npz(files[0]), weights=None)  # PyG ignores the stored values of edges, too
    if name in _PLANETOID:
        return _with_sparse_features(from_pyg(datasets.Planetoid(str(root), _PLANETOID[name])))
    if name in _ATTRIBUTED:
        return _with_sparse_features(from_pyg(datasets.AttributedGraphDataset(str(root), _ATTRIBUTED[name])))
    assert name == "reddit", name
    return from_pyg(datasets.Reddit2(str(root)))


def _fetch_ogb(name: str, root: Path) -> Graph:
    """OGB's archive as it is: the `ogb` package would read and write pickles."""
    data: Any = import_module("torch_geometric.data")
    archive = data.download_url(f"{_OGB_URL}/{_OGB[name]}.zip", str(root))
    data.extract_zip(archive, str(root))
    Path(archive).unlink()
    return read_ogb(root / _OGB[name])


def _with_sparse_features(graph: Graph) -> Graph:
    """Words of a text: nine in ten entries are zero."""
    features: Any = graph.features
    return replace(graph, features=sp.csr_array(features))
