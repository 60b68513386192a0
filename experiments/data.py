"""The graphs of the paper, and synthetic ones of the size of those that cannot be had."""

from functools import lru_cache

from nagphormer import Graph, load_graph, per_class_split, random_split, synthetic_graph
from nagphormer.data.datasets import DATASETS
from nagphormer.data.splits import budget_split
from nagphormer.errors import UserError

SMALL = ("pubmed", "corafull", "computers", "photo", "cs", "physics")
LARGE = ("aminer", "reddit", "amazon2m")
GOPHORMER = ("cora", "citeseer", "pubmed", "blogcatalog", "dblp", "flickr")
OTHERS = ("actor", "chameleon_filtered", "squirrel_filtered", "minesweeper", "wordnet")
TEN_SPLITS = OTHERS[:4]
"""Their files hold ten splits: seed s takes number s."""
AT_HAND = ("pubmed", "computers", "photo", "cs", "physics", "cora", "citeseer", "dblp", "blogcatalog", "flickr")
"""The paper's, as far as they could be had."""
NOT_HAD = ("corafull", *LARGE)
"""No complete copy was at hand when the results were recorded; with the data, the commands measure them too."""
QUICK = ("cora", "citeseer")
FIXED = "-fixed"
"""After a data set's name: with the one 60/20/20 split that recent papers share; seeds then change weights alone."""
ON_FIXED = tuple(name + FIXED for name in ("computers", "photo", "cs", "physics"))
"""Those whose files hold it."""
SYNTHETIC = "synthetic-"
"""Before a data set's name: a random graph of its size."""
RANDOM = "random-"
"""Before a number of nodes: a random graph of that size, ten edges a node."""

MOST_SEEDS = {"wordnet": 1}
"""So large that no more are measured."""
JUDGED_BY = {"minesweeper": "roc_auc"}
"""What chooses epochs and settings, and is shown, where it is not accuracy: four of five fields hold no mine."""

TITLES = {
    "pubmed": "Pubmed",
    "corafull": "CoraFull",
    "computers": "Computers",
    "photo": "Photo",
    "cs": "CS",
    "physics": "Physics",
    "aminer": "AMiner-CS",
    "reddit": "Reddit",
    "amazon2m": "Amazon2M",
    "cora": "Cora",
    "citeseer": "Citeseer",
    "dblp": "DBLP",
    "blogcatalog": "BlogCatalog",
    "flickr": "Flickr",
    "actor": "Actor",
    "chameleon_filtered": "Chameleon (filtered)",
    "squirrel_filtered": "Squirrel (filtered)",
    "minesweeper": "Minesweeper",
    "wordnet": "WordNet",
}


def load(dataset: str, seed: int) -> Graph:
    """A data set with the split of a seed, or as `<name>-fixed` with one for all.

    `synthetic-<name>` is a random graph of that one's size.
    """
    if dataset.startswith(RANDOM):
        num_nodes = int(dataset.removeprefix(RANDOM))
        return random_split(synthetic_graph(num_nodes, 10 * num_nodes, num_features=64, num_classes=10), seed=seed)
    if dataset.endswith(FIXED):
        return load_graph(graph_name(dataset), split="fixed")
    if not dataset.startswith(SYNTHETIC):
        graph = load_graph(dataset, split=seed if dataset in TEN_SPLITS else None, seed=seed)
        return graph if graph.splits else random_split(graph, seed=seed)
    size = DATASETS[dataset.removeprefix(SYNTHETIC)]
    graph = synthetic_graph(size.num_nodes, size.num_edges, size.num_features, size.num_classes)
    return budget_split(graph, seed=seed) if size.rule == "budget" else per_class_split(graph, seed=seed)


def graph_name(dataset: str) -> str:
    """What a data set's graph is called, whatever its split."""
    return dataset.removesuffix(FIXED)


def judged_by(dataset: str) -> str:
    """The metric by which methods are judged on a data set."""
    return JUDGED_BY.get(dataset, "accuracy")


@lru_cache
def obtainable(dataset: str) -> bool:
    """Whether a data set can be loaded here."""
    if dataset.startswith(SYNTHETIC):
        return True
    try:
        load(dataset, 0)
    except UserError:
        return False
    return True


def title(dataset: str) -> str:
    """A data set's name as people write it."""
    name = graph_name(dataset.removeprefix(SYNTHETIC))
    base = TITLES.get(name, name)
    if dataset.endswith(FIXED):
        return f"{base}, fixed split"
    return f"synthetic, {base}'s size" if dataset.startswith(SYNTHETIC) else base
