import pytest
from reference import isolated, random_graph

from nagphormer import UserError, hop_tokens
from nagphormer.tokens import estimate
from nagphormer.tokens.estimate import estimate_cost
from nagphormer.tokens.memory import RESERVE


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_disk_is_what_the_store_takes(dtype, tmp_path):
    graph = random_graph(200, 20)
    hop_tokens(graph, 3, dtype=dtype, out=tmp_path / "store")
    blocks = (tmp_path / "store").glob("block-*")
    assert estimate_cost(graph, 3, dtype=dtype).disk_bytes == sum(block.stat().st_size for block in blocks)


def test_the_encoding_counts_as_columns():
    graph = random_graph(200, 20)
    assert estimate_cost(graph, 3, encoding_dim=5).disk_bytes == 200 * 4 * 25 * 2


def test_memory_is_what_one_slice_holds():
    assert estimate_cost(random_graph(200, 20), 3).memory_bytes == 200 * 3 * 32 * 2 + RESERVE


def test_time_is_positive_and_grows_with_hops(monkeypatch):
    monkeypatch.setattr(estimate, "_write_rate", lambda: 1e9)
    monkeypatch.setattr(estimate, "_seconds_per_column", lambda *_: 1.0)
    assert estimate_cost(random_graph(200, 20), 3).seconds == pytest.approx(3 * 20 + 3 * 200 * 4 * 20 * 2 / 1e9)


@pytest.mark.parametrize("graph", [random_graph(weighted=True), isolated(3)], ids=["weighted", "edgeless"])
def test_any_graph_can_be_measured(graph):
    assert 0 < estimate_cost(graph, 2).seconds < 60


def test_negative_hops_are_refused():
    with pytest.raises(UserError, match="hops must be 0 or more, not -3"):
        estimate_cost(random_graph(), -3)
