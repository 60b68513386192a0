import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from nagphormer import UserError, from_scipy, load_graph
from nagphormer.data import datasets
from nagphormer.data.datasets import BUNDLED, DATASETS, DataSet
from nagphormer.files import checksum

COUNTS = {  # nodes, undirected edges, features, classes
    "pubmed": (19_717, 44_324, 500, 3),
    "photo": (7_650, 119_081, 745, 8),
    "computers": (13_752, 245_861, 767, 10),
    "cs": (18_333, 81_894, 6_805, 15),
    "physics": (34_493, 247_962, 8_415, 5),
    "dblp": (17_716, 52_867, 1_639, 4),
    "blogcatalog": (5_196, 171_743, 8_189, 6),
    "flickr": (7_575, 239_738, 12_047, 9),
    "cora": (2_708, 5_278, 1_433, 7),
    "citeseer": (3_327, 4_552, 3_703, 6),
    "actor": (7_600, 26_659, 932, 5),
    "chameleon_filtered": (890, 8_854, 2_325, 5),
    "squirrel_filtered": (2_223, 46_998, 2_089, 5),
    "minesweeper": (10_000, 39_402, 7, 2),
    "wordnet": (117_659, 183_789, 4_000, 41),
}


def counts(graph):
    return (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)


def sizes(graph):
    return tuple(len(idx) for idx in graph.splits.values())


def ring(num_nodes=10, num_classes=2):
    nodes = np.arange(num_nodes)
    adjacency = sp.csr_array((np.ones(num_nodes), (nodes, (nodes + 1) % num_nodes)), shape=(num_nodes,) * 2)
    return from_scipy(adjacency, features=np.ones((num_nodes, 3)), labels=nodes % num_classes)


def write_npz(path, graph, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    adjacency = graph.adjacency()
    parts = {"data": adjacency.data, "indices": adjacency.indices, "indptr": adjacency.indptr}
    np.savez(
        path,
        **{f"adj_{part}": value for part, value in parts.items()},
        adj_shape=np.array(adjacency.shape),
        attr_matrix=graph.features,
        labels=graph.labels,
        **more,
    )


def masks(num_nodes=10, rows=None):
    parts = {name: np.arange(num_nodes) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    if rows is None:
        return {f"{name}_mask": mask for name, mask in parts.items()}
    return {f"{name}_masks": np.stack([np.roll(mask, i) for i in range(rows)]) for name, mask in parts.items()}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Empty folders for data, cache and work, and a PyTorch Geometric that is not installed."""
    folders = SimpleNamespace(data=tmp_path / "data", cache=tmp_path / "cache/nagphormer", work=tmp_path / "work")
    folders.data.mkdir()
    folders.work.mkdir()
    monkeypatch.setenv("NAGPHORMER_DATA", str(folders.data))
    monkeypatch.delenv("NAGPHORMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(folders.work)
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", None)
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    return folders


@pytest.fixture
def small_photo(monkeypatch):
    """Let the ring of ten nodes be the data set photo."""
    monkeypatch.setitem(DATASETS, "photo", DataSet(10, 10, 3, 2, "random"))


def test_a_graph_folder_may_be_called_anything(tmp_path):
    ring().save(tmp_path / "ring.npz")
    assert load_graph(tmp_path / "ring.npz").num_nodes == 10


@pytest.mark.parametrize("name", COUNTS)
def test_real_data_sets_have_their_published_counts(data_folder, name):
    graph = load_graph(name)
    assert counts(graph) == COUNTS[name]
    assert graph.name == name
    assert graph.weights is None


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("pubmed", None, (11_830, 3_943, 3_944)),
        ("pubmed", "public", (60, 500, 1_000)),
        ("cora", "public", (140, 500, 1_000)),
        ("citeseer", "public", (120, 500, 1_000)),
        ("photo", "fixed", (4_590, 1_530, 1_530)),
        ("actor", None, (3_648, 2_432, 1_520)),
        ("minesweeper", 9, (5_000, 2_500, 2_500)),
        ("wordnet", None, ()),
    ],
)
def test_real_data_sets_have_their_splits(data_folder, name, split, expected):
    assert sizes(load_graph(name, split=split)) == expected


def test_the_default_of_a_small_set_is_random_60_20_20(data_folder):
    order = np.random.RandomState(4).permutation(7_650)
    np.testing.assert_array_equal(load_graph("photo", seed=4).splits["train"], np.sort(order[:4_590]))


def test_a_file_of_ten_splits_gives_number_0_by_default(data_folder):
    default, first, other = (load_graph("actor", split=split) for split in (None, 0, np.int64(1)))
    np.testing.assert_array_equal(default.splits["train"], first.splits["train"])
    assert not np.array_equal(default.splits["train"], other.splits["train"])


def test_counts_of_words_stay_counts(data_folder):
    assert load_graph("cs").features.max() > 1


def test_cora_is_bundled(places):
    graph = load_graph("cora")
    assert counts(graph) == COUNTS["cora"]
    assert graph.class_names[:2] == ("Case_Based", "Genetic_Algorithms")
    assert graph.node_ids[:2].tolist() == [31336, 1061127]
    assert sizes(graph) == (1_624, 542, 542)


def test_the_bundled_file_is_the_one_its_readme_describes():
    file, readme = BUNDLED / "cora.npz", (BUNDLED / "README.md").read_text()
    assert file.stat().st_size < 150_000
    assert checksum(file) in readme
    assert f"{file.stat().st_size:,} bytes" in readme


def test_the_bundled_graph_has_no_public_split_and_says_where_there_is_one(places):
    with pytest.raises(UserError, match=r"no split 'public'.*from_pyg"):
        load_graph("cora", split="public")


def test_places_are_searched_in_order(places, small_photo):
    write_npz(places.data / "photo.npz", ring(), node_ids=np.arange(10) + 100)
    write_npz(places.cache / "photo.npz", ring(), node_ids=np.arange(10) + 200)
    replace(ring(), name="photo").save(places.cache / "photo")
    assert load_graph("photo").node_ids[0] == 100
    (places.data / "photo.npz").unlink()
    assert load_graph("photo").node_ids[0] == 200
    (places.cache / "photo.npz").unlink()
    assert load_graph("photo").node_ids[0] == 0


def test_data_and_cache_come_before_the_bundled_graph(places, monkeypatch):
    monkeypatch.setitem(DATASETS, "cora", DataSet(10, 10, 3, 2, "random"))
    ring().save(places.cache / "cora")
    graph = load_graph("cora")
    assert (graph.num_nodes, graph.name) == (10, "cora")


def test_any_file_in_the_data_folder_loads_by_its_name(places):
    write_npz(places.data / "mine.npz", ring(), **masks())
    graph = load_graph("mine")
    assert (graph.name, sizes(graph)) == ("mine", (4, 3, 3))
    assert sizes(load_graph("mine", split="random")) == (6, 2, 2)


def test_the_default_cache_lies_in_the_home_folder(monkeypatch, tmp_path):
    for name in ("XDG_CACHE_HOME", "NAGPHORMER_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert datasets.cache_folder() == tmp_path / ".cache/nagphormer"


def test_a_namesake_is_refused_with_both_counts(places):
    write_npz(places.data / "photo.npz", ring())
    with pytest.raises(UserError, match=r"photo\.npz is not the data set photo: 10 nodes instead of 7,650"):
        load_graph("photo")


def test_edge_counts_may_leave_out_known_self_loops(places, monkeypatch):
    write_npz(places.data / "ogbn-products.npz", ring())
    for num_loops, fits in ((0, False), (2, True), (3, False)):
        monkeypatch.setitem(DATASETS, "ogbn-products", DataSet(10, 12, 3, 2, None, num_loops))
        if fits:
            assert load_graph("ogbn-products").splits == {}
        else:
            with pytest.raises(UserError, match="10 edges instead of 12"):
                load_graph("ogbn-products")


@pytest.mark.parametrize(
    ("name", "rule", "expected"),
    [("reddit", "per_class", (40, 60, 20)), ("amazon2m", "budget", (40, 60, 20)), ("ogbn-arxiv", None, ())],
)
def test_large_sets_are_split_by_their_own_rule(places, monkeypatch, name, rule, expected):
    assert DATASETS[name].rule == rule
    monkeypatch.setitem(DATASETS, name, DataSet(120, 120, 3, 2, rule))
    write_npz(places.data / f"{name}.npz", ring(120))
    assert sizes(load_graph(name)) == expected
    assert sizes(load_graph(name, split="random")) == (72, 24, 24)


def test_ogb_sets_take_their_official_split(places, monkeypatch):
    monkeypatch.setitem(DATASETS, "ogbn-arxiv", DataSet(10, 10, 3, 2, None))
    ring().with_splits(train=[1], val=[2], test=[3, 4]).save(places.cache / "ogbn-arxiv")
    assert sizes(load_graph("ogbn-arxiv")) == (1, 1, 2)


def test_amazon2m_is_the_graph_of_ogbn_products_split_anew(places, monkeypatch):
    monkeypatch.setitem(DATASETS, "amazon2m", DataSet(120, 120, 3, 2, "budget"))
    ring(120).with_splits(train=[1], val=[2], test=[3]).save(places.cache / "ogbn-products")
    graph = load_graph("amazon2m")
    assert (graph.name, sizes(graph)) == ("amazon2m", (40, 60, 20))


def test_a_file_by_path_has_its_own_split_or_none(places):
    file = places.work / "graph.npz"
    write_npz(file, ring())
    assert load_graph("graph.npz").splits == {}
    write_npz(file, ring(), **masks())
    assert sizes(load_graph(file)) == (4, 3, 3)
    write_npz(file, ring(), **masks(rows=2))
    assert load_graph(file).splits["train"].tolist() == [0, 3, 6, 9]
    assert load_graph(file, split=1).splits["train"].tolist() == [0, 1, 4, 7]


def test_a_graph_folder_keeps_its_split_unless_another_is_asked_for(places):
    ring().with_splits(train=[1], val=[2], test=[3, 4]).save("mine")
    assert sizes(load_graph("mine")) == sizes(load_graph("mine", split="public")) == (1, 1, 2)
    assert sizes(load_graph("mine", split="random")) == (6, 2, 2)
    with pytest.raises(UserError, match=r"no split 3: it has 'public'"):
        load_graph("mine", split=3)


def test_a_named_set_gets_its_rule_by_path_too(places, small_photo):
    write_npz(places.work / "photo.npz", ring(), **masks())
    assert sizes(load_graph("photo.npz")) == (6, 2, 2)
    write_npz(places.work / "photo.npz", ring(12), **masks(12))
    assert sizes(load_graph("photo.npz")) == (4, 4, 4)


def test_an_imported_folder_of_a_named_set_gets_its_rule(places, small_photo):
    replace(ring(), name="photo").save("imported")
    assert sizes(load_graph("imported")) == (6, 2, 2)
    replace(ring(12), name="photo").save("other")
    assert load_graph("other").splits == {}


def test_a_folder_called_like_a_data_set_is_reached_by_its_path(places):
    ring().save("cora")
    assert load_graph("./cora").num_nodes == 10
    assert load_graph("cora").num_nodes == 2_708


def test_an_unknown_name_lists_what_is_known(places):
    write_npz(places.data / "mine.npz", ring())
    with pytest.raises(UserError, match=r"'Pubmd'\. Did you mean 'pubmed'\? Known are: .*flickr, mine, ogbn"):
        load_graph("Pubmd")
    with pytest.raises(UserError, match=r"absent\.npz does not exist"):
        load_graph("absent.npz")
    with pytest.raises(UserError, match="absent does not exist"):
        load_graph(places.work / "absent")


@pytest.mark.parametrize("split", ["Random", "per_class", True, 1.5])
def test_unknown_splits_are_refused(places, split):
    with pytest.raises(UserError, match="unknown split"):
        load_graph("cora", split=split)


def test_other_files_and_folders_are_refused_with_the_way_out(places):
    (places.work / "edges.csv").write_text("source,target\n")
    with pytest.raises(UserError, match=r"import --edges edges\.csv"):
        load_graph("edges.csv")
    (places.work / "raw").mkdir()
    with pytest.raises(UserError, match="use read_ogb"):
        load_graph(places.work)
    (places.work / "grand").mkdir()
    (places.work / "grand/reddit_adj.npz").touch()
    with pytest.raises(UserError, match="import --grand-plus grand"):
        load_graph("grand")
    (places.work / "empty").mkdir()
    with pytest.raises(UserError, match="not a graph folder"):
        load_graph("empty")


def test_a_data_folder_that_does_not_exist_is_refused(places, monkeypatch):
    monkeypatch.setenv("NAGPHORMER_DATA", str(places.data / "absent"))
    with pytest.raises(UserError, match=r"NAGPHORMER_DATA is .*absent"):
        load_graph("pubmed")


def test_downloads_are_kept_as_a_graph_folder(places, small_photo, monkeypatch):
    calls = []

    def download(name, root, cache):
        calls.append(name)
        (root / "raw").mkdir()
        return ring()

    monkeypatch.setattr(datasets, "download", download)
    first, second = load_graph("photo"), load_graph("photo")
    assert calls == ["photo"]
    assert (second.name, sizes(second)) == ("photo", (6, 2, 2))
    assert first.fingerprint == second.fingerprint
    assert [entry.name for entry in places.cache.iterdir()] == ["photo"]  # what PyG wrote is gone


def test_amazon2m_downloads_ogbn_products(places, monkeypatch):
    for name, rule in (("amazon2m", "budget"), ("ogbn-products", None)):
        monkeypatch.setitem(DATASETS, name, DataSet(120, 120, 3, 2, rule))
    monkeypatch.setattr(datasets, "download", lambda name, root, cache: {"ogbn-products": ring(120)}[name])
    assert load_graph("amazon2m").name == "amazon2m"
    assert load_graph("ogbn-products").name == "ogbn-products"


def test_a_download_with_wrong_counts_is_not_kept(places, monkeypatch):
    monkeypatch.setattr(datasets, "download", lambda name, root, cache: ring())
    with pytest.raises(UserError, match="downloaded is not the data set photo"):
        load_graph("photo")
    assert list(places.cache.iterdir()) == []


def test_without_pytorch_geometric_the_message_says_what_to_do(places):
    with pytest.raises(UserError, match=r"put photo\.npz into .*\n.*pip install 'nagphormer\[pyg\]'"):
        load_graph("photo")
    with pytest.raises(UserError, match=r"import --grand-plus aminer --allow-pickle --out .*aminer"):
        load_graph("aminer")
    with pytest.raises(UserError, match=r"pickles.*allow_pickle=True"):
        load_graph("pubmed")


def test_of_a_public_split_and_several_stored_ones_number_0_is_the_default(tmp_path):
    parts = {
        "adj_data": [1.0],
        "adj_indices": [1],
        "adj_indptr": [0, 1, 1, 1],
        "adj_shape": [3, 3],
        "labels": [0, 1, 0],
    }
    masks = np.eye(3, dtype=bool)
    public = dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))
    numbered = {f"{split}_masks": masks[[row]] for split, row in (("train", 2), ("val", 1), ("test", 0))}
    np.savez(tmp_path / "mine.npz", **parts, **public, **numbered)
    assert load_graph(tmp_path / "mine.npz").splits["train"].tolist() == [2]
    assert load_graph(tmp_path / "mine.npz", "public").splits["train"].tolist() == [0]
