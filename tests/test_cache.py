import json
from datetime import date
from pathlib import Path

import pytest
from examples import named_graph

from nagphormer import hop_tokens
from nagphormer.cache import Entry, cache_folder, can_be_written, entries, remove, tokens_in_cache


@pytest.fixture
def filled(own_cache):
    """A cache with tokens of a graph, and the graph."""
    graph = named_graph()
    graph.save(own_cache / "small")
    hop_tokens(graph, 2, out=tokens_in_cache("tokens-1", "small"), device="cpu")
    return own_cache


def test_one_variable_names_the_cache_before_another(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    monkeypatch.delenv("NAGPHORMER_CACHE")
    assert cache_folder() == Path("/there/nagphormer")
    monkeypatch.setenv("NAGPHORMER_CACHE", "/here")
    assert cache_folder() == Path("/here")


def test_tokens_lie_under_the_name_of_their_graph_and_are_found_under_any(filled):
    assert tokens_in_cache("tokens-1", "small") == filled / "tokens" / "small" / "tokens-1"
    assert tokens_in_cache("tokens-1", "renamed") == filled / "tokens" / "small" / "tokens-1"
    assert tokens_in_cache("tokens-2", "../a b") == filled / "tokens" / "_a_b" / "tokens-2"
    assert tokens_in_cache("tokens-2", None) == filled / "tokens" / "unnamed" / "tokens-2"


def test_entries_say_what_they_are(filled):
    store, graph = entries()
    size = sum(path.stat().st_size for path in (filled / "tokens" / "small" / "tokens-1").iterdir())
    settings = {"hops": 2, "encoding_dim": 0, "feature_scaling": "none", "dtype": "float16"}
    assert store == Entry(filled / "tokens/small/tokens-1", "tokens", "small", settings, size, date.today())
    assert (graph.path, graph.kind, graph.graph, graph.settings) == (filled / "small", "graph", "small", {})


def test_what_is_removed_is_gone_with_its_empty_folder_and_nothing_else(filled):
    (filled / "mine.npz").touch()
    store, graph = entries()
    remove([store])
    assert entries() == [graph]
    assert sorted(path.relative_to(filled).as_posix() for path in filled.glob("*")) == ["mine.npz", "small", "tokens"]
    assert list((filled / "tokens").iterdir()) == []


def test_a_damaged_entry_is_listed_to_be_removed(filled):
    (filled / "tokens" / "small" / "tokens-1" / "manifest.json").write_text("{")
    store, _ = entries()
    assert store.settings == {}
    remove([store])
    assert len(entries()) == 1


def test_a_cache_that_is_not_there_yet_is_empty_and_can_be_written(own_cache, monkeypatch):
    assert entries() == []
    assert can_be_written()
    assert not own_cache.exists()
    own_cache.parent.joinpath("file").touch()
    monkeypatch.setenv("NAGPHORMER_CACHE", str(own_cache.parent / "file" / "inside"))
    assert not can_be_written()


# main() reads sys.argv, as a user's shell fills it
@pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
def test_the_command_lists_and_clears(filled, run):
    code, out, _ = run("cache")
    head, store, graph = out.splitlines()
    assert code == 0
    assert head.startswith(f"{filled}: 2 held, ")
    assert store.endswith("small, hops 2, encoding_dim 0, feature_scaling none, dtype float16")
    assert graph.split()[0] == "graph"
    facts = json.loads(run("cache", "--json")[1])
    assert [entry["kind"] for entry in facts["entries"]] == ["tokens", "graph"]
    assert facts["bytes"] == sum(entry["bytes"] for entry in facts["entries"])
    assert run("cache", "--clear")[1].startswith(f"{filled}: 1 removed, ")
    assert [entry.kind for entry in entries()] == ["graph"]
    assert run("cache", "--clear", "--graphs")[0] == 0
    assert entries() == []
