"""No test here uses the network: PyTorch Geometric's classes are replaced by small ones."""

import gzip
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nagphormer import UserError
from nagphormer.data.datasets import DATASETS
from nagphormer.data.download import check_download, download
from nagphormer.errors import MissingExtra

DATA = SimpleNamespace(
    edge_index=torch.tensor([[0, 1], [1, 2]]),
    num_nodes=3,
    x=torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]]),
    y=torch.tensor([0, 1, 1]),
    train_mask=torch.tensor([True, False, False]),
)


class FakeDataset(list):
    """Holds `DATA`, as PyG's classes do, and remembers how it was called."""

    calls: ClassVar[list] = []

    def __init__(self, root, name=None):
        super().__init__([DATA])
        self.calls.append((type(self).__name__, name))
        self.raw_paths = [str(Path(root) / "raw.npz")]
        counts = sp.csr_array(np.array([[0, 5.0], [0, 0], [1, 0]]))
        edges = sp.csr_array(np.array([[0, 3.0, 0], [0, 0, 1], [0, 0, 0]]))
        parts = {
            f"{prefix}_{part}": np.asarray(getattr(matrix, part))
            for prefix, matrix in (("adj", edges), ("attr", counts))
            for part in ("data", "indices", "indptr", "shape")
        }
        np.savez(self.raw_paths[0], labels=np.array([0, 1, 1]), class_names=np.array([{}], object), **parts)


@pytest.fixture
def pyg(monkeypatch):
    """PyTorch Geometric's data-set classes, without the network."""
    FakeDataset.calls.clear()
    names = ("Amazon", "Coauthor", "CitationFull", "Planetoid", "AttributedGraphDataset", "Reddit2")
    module = SimpleNamespace(**{name: type(name, (FakeDataset,), {}) for name in names})
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", module)
    return FakeDataset


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("photo", ("Amazon", "Photo")),
        ("computers", ("Amazon", "Computers")),
        ("cs", ("Coauthor", "CS")),
        ("physics", ("Coauthor", "Physics")),
        ("corafull", ("CitationFull", "Cora")),
        ("dblp", ("CitationFull", "DBLP")),
        ("citeseer", ("Planetoid", "CiteSeer")),
        ("pubmed", ("Planetoid", "PubMed")),
        ("blogcatalog", ("AttributedGraphDataset", "BlogCatalog")),
        ("flickr", ("AttributedGraphDataset", "Flickr")),
        ("reddit", ("Reddit2", None)),
    ],
)
def test_every_name_finds_its_class_and_not_a_namesake(pyg, tmp_path, name, call):
    graph = download(name, tmp_path, tmp_path)
    assert pyg.calls == [call]
    assert (graph.num_nodes, graph.num_edges, graph.weights) == (3, 2, None)


def test_raw_files_keep_counts_that_pyg_would_turn_into_ones(pyg, tmp_path):
    graph = download("cs", tmp_path, tmp_path)
    assert graph.features.toarray().tolist() == [[0, 5], [0, 0], [1, 0]]


@pytest.mark.parametrize("name", ["pubmed", "flickr"])
def test_word_features_become_sparse(pyg, tmp_path, name):
    graph = download(name, tmp_path, tmp_path)
    assert sp.issparse(graph.features)
    assert graph.features.nnz == 2


def test_the_public_split_comes_along(pyg, tmp_path):
    assert download("pubmed", tmp_path, tmp_path).splits["train"].tolist() == [0]


def test_ogb_sets_are_read_from_their_archive(tmp_path, monkeypatch):
    def download_url(url, folder):
        assert url == "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
        path = Path(folder) / "arxiv.zip"
        files = {
            "edge": "0,1\n1,2\n",
            "num-node-list": "3\n",
            "num-edge-list": "2\n",
            "node-label": "0\n1\n1\n",
        }
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(f"arxiv/raw/{name}.csv.gz", gzip.compress(content.encode()))
            for part, node in (("train", 0), ("valid", 1), ("test", 2)):
                archive.writestr(f"arxiv/split/time/{part}.csv.gz", gzip.compress(f"{node}\n".encode()))
        return str(path)

    def extract_zip(path, folder):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)

    module = SimpleNamespace(download_url=download_url, extract_zip=extract_zip)
    monkeypatch.setitem(sys.modules, "torch_geometric.data", module)
    graph = download("ogbn-arxiv", tmp_path, tmp_path)
    assert (graph.num_nodes, graph.num_edges) == (3, 2)
    assert graph.splits["val"].tolist() == [1]
    assert not (tmp_path / "arxiv.zip").exists()


def test_every_name_can_be_had_somehow(tmp_path):
    """A name that is neither bundled, downloadable nor explained would be a dead end."""
    for name in DATASETS.keys() - {"cora", "aminer", "amazon2m"}:
        check_download(name, tmp_path, allow_pickle=True)


def test_pickles_need_permission(tmp_path):
    for name in ("citeseer", "pubmed"):
        with pytest.raises(UserError, match=rf"pickles.*allow_pickle=True.*put {name}\.npz"):
            check_download(name, tmp_path, allow_pickle=False)


def test_aminer_comes_from_grand_plus(tmp_path):
    with pytest.raises(UserError, match=rf"--grand-plus aminer --allow-pickle --out {tmp_path}/aminer"):
        check_download("aminer", tmp_path, allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("photo", r"put photo\.npz into"), ("ogbn-arxiv", r"arxiv\.zip[^$]*read_ogb\('arxiv'\)")],
)
def test_without_pytorch_geometric_the_extra_and_the_file_are_named(monkeypatch, tmp_path, name, instead):
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", None)
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(MissingExtra, match=instead) as caught:
        download(name, tmp_path, tmp_path)
    assert "pip install 'nagphormer[pyg]'" in str(caught.value)


def test_a_package_that_pyg_itself_misses_is_named(monkeypatch, tmp_path):
    def fail(root, name):
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", SimpleNamespace(AttributedGraphDataset=fail))
    with pytest.raises(UserError, match="pip install pandas"):
        download("flickr", tmp_path, tmp_path)


def test_a_failed_download_says_why_and_what_else_to_do(monkeypatch, tmp_path):
    def fail(root, name):
        raise OSError("no route to host")

    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", SimpleNamespace(Amazon=fail))
    with pytest.raises(UserError, match=r"OSError: no route to host.*put photo\.npz into"):
        download("photo", tmp_path, tmp_path)


def test_the_real_classes_have_the_names_used_here():
    datasets = pytest.importorskip("torch_geometric.datasets", reason="needs torch-geometric")
    for name in ("Amazon", "Coauthor", "CitationFull", "Planetoid", "AttributedGraphDataset", "Reddit2"):
        assert hasattr(datasets, name)
    data = sys.modules["torch_geometric.data"]
    assert hasattr(data, "download_url")
    assert hasattr(data, "extract_zip")
