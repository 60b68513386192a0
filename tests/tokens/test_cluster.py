"""Blocks made by Ray's workers must be those of one machine, to the byte, also when a worker dies."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nagphormer import TokenStore, UserError, hop_tokens, load_graph, synthetic_graph
from nagphormer.settings import TokenSettings
from nagphormer.tokens import cluster, store
from nagphormer.tokens.hop2token import make_tokens
from nagphormer.tokens.job import Exponents, Layout

pytest.importorskip("ray", reason="needs the extra cluster")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def graph(tmp_path):
    synthetic_graph(3000, 20_000, 40, 4).save(tmp_path / "graph")
    return load_graph(tmp_path / "graph")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"encoding_dim": 3, "feature_scaling": "standardize"},
        {"dtype": "bfloat16", "feature_scaling": "row"},
        {"reduce_dim": 20, "feature_scaling": "standardize"},
        {"reduce_dim": 20, "feature_scaling": "length", "copy": 3},
    ],
)
def test_the_store_is_that_of_one_machine(graph, tmp_path, monkeypatch, settings):
    monkeypatch.setattr(store, "BLOCK_BYTES", 3000 * 2 * 16)
    tokens = TokenSettings(hops=2, **settings)
    make_tokens(graph, tokens, out=tmp_path / "alone", device="cpu")
    made = make_tokens(graph, tokens, out=tmp_path / "together", cluster="local")
    assert len(made.manifest.blocks) >= 2
    assert files(tmp_path / "alone") == files(tmp_path / "together")
    np.testing.assert_array_equal(TokenStore.open(tmp_path / "alone")[[0, 7]], made[[0, 7]])


def test_what_cannot_be_shared_is_refused_before_work(graph, tmp_path):
    with pytest.raises(UserError, match="graph folder"):
        hop_tokens(synthetic_graph(100, 300, 4, 2), 1, out=tmp_path / "t", cluster="local")
    with pytest.raises(UserError, match="out=FOLDER"):
        hop_tokens(graph, 1, cluster="local")
    with pytest.raises(UserError, match="processors"):
        hop_tokens(graph, 1, out=tmp_path / "t", device="cuda", cluster="local")
    with pytest.raises(UserError, match=r"127\.0\.0\.1:1"):
        hop_tokens(graph, 1, out=tmp_path / "t", cluster="127.0.0.1:1")
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_too_little_memory_for_a_worker_is_refused(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "INTERPRETER", 10**13)
    with pytest.raises(UserError, match="a worker needs more than"):
        hop_tokens(graph, 1, out=tmp_path / "t", cluster="local")
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_a_second_attempt_writes_beside_the_first(graph, tmp_path):
    """What a dead worker left, or one that only seemed dead still writes, is not touched."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "attempts-000").write_text(".")
    (tmp_path / "new" / "unfinished-000-old").write_bytes(b"half")
    expected = hop_tokens(graph, 1, out=tmp_path / "alone", device="cpu")
    zeros = np.zeros(40, np.int64)
    blocks = cluster.Blocks(
        graph=str(tmp_path / "graph"),
        folder=str(tmp_path / "new"),
        layout=Layout.of(graph, TokenSettings(hops=1), "cpu", 10**9, may_spill=True),
        encoding=False,
        statistics={},
        exponents=Exponents(np.array(expected.manifest.column_exponents), zeros),
    )
    block, attempts = blocks.write(0)
    assert attempts == 2
    assert (tmp_path / "new" / "unfinished-000-old").read_bytes() == b"half"
    assert (tmp_path / "new" / "block-000.bin").stat().st_size == block.bytes


MAKE = """
import sys
from nagphormer import synthetic_graph
synthetic_graph(1_000_000, 10_000_000, 128, 10).save(sys.argv[1])
"""
PREPARE = """
import sys
from nagphormer.tokens import store
store.BLOCK_BYTES = 64 * 10**6
from nagphormer.cli import main
main()
"""


def worker_at_work(folder):
    """The process that is writing a block, if there is one."""
    for path in Path("/proc").glob("[0-9]*/fd"):
        try:
            targets = [os.readlink(link) for link in path.iterdir()]
        except OSError:
            continue
        if any(re.search(r"unfinished-\d+-\w+$", target) and str(folder) in target for target in targets):
            return int(path.parent.name)
    return None


@pytest.mark.slow
def test_a_worker_that_is_killed_at_work_costs_a_retry_and_no_byte(tmp_path):
    subprocess.run([sys.executable, "-c", MAKE, str(tmp_path / "graph")], check=True)  # its memory goes with it
    command = [sys.executable, "-c", PREPARE, "prepare", str(tmp_path / "graph"), "--hops=3"]
    subprocess.run([*command, f"--out={tmp_path / 'alone'}", "--device=cpu"], check=True)
    process = subprocess.Popen(
        [*command, f"--out={tmp_path / 'together'}", "--cluster"], stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 120
    while (worker := worker_at_work(tmp_path)) is None:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(worker, signal.SIGKILL)
    _, printed = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert "1 of 4 blocks were made again after their worker had died" in printed
    assert files(tmp_path / "alone") == files(tmp_path / "together")
