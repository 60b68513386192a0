import pytest
from reference import isolated, random_graph

from nagphormer import UserError, hop_tokens
from nagphormer.device import RESERVE
from nagphormer.tokens import estimate
from nagphormer.tokens.estimate import estimate_cost


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
    process = estimate.anonymous_memory()
    held = estimate_cost(random_graph(200, 20), 3).memory_bytes - process
    assert held == pytest.approx(200 * 3 * 32 * 2 + 200 * 50 + RESERVE, rel=0.2)


def test_the_search_for_eigenvectors_counts_where_it_needs_more(monkeypatch):
    monkeypatch.setattr(estimate, "anonymous_memory", lambda: 0)  # grows while kernels are compiled
    graph = random_graph(100_000, 1)
    assert estimate_cost(graph, 1, encoding_dim=10).memory_bytes > estimate_cost(graph, 1).memory_bytes + 10**7


def test_time_is_positive_and_grows_with_hops(monkeypatch):
    monkeypatch.setattr(estimate, "_write_rate", lambda: 1e9)
    monkeypatch.setattr(estimate, "_seconds_per_column", lambda *_: 1.0)
    assert estimate_cost(random_graph(200, 20), 3).seconds == pytest.approx(3 * 20 + 200 * 4 * 20 * 2 / 1e9)


@pytest.mark.parametrize("graph", [random_graph(weighted=True), isolated(3)], ids=["weighted", "edgeless"])
def test_any_graph_can_be_measured(graph):
    assert 0 < estimate_cost(graph, 2).seconds < 60


def test_a_negative_encoding_is_refused():
    with pytest.raises(UserError, match="encoding_dim must be 0 or more, not -1"):
        estimate_cost(random_graph(), 2, encoding_dim=-1)


def test_negative_hops_are_refused():
    with pytest.raises(UserError, match="hops must be 0 or more, not -3"):
        estimate_cost(random_graph(), -3)
