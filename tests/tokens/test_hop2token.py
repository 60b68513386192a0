import errno
from pathlib import Path

import numba
import numpy as np
import pytest
import reference
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import path_graph, random_adjacency, random_graph, star_graph

from nagphormer import (
    UserError,
    device,
    from_scipy,
    hop_tokens,
    laplacian_encoding,
    load_graph,
    progress,
    synthetic_graph,
)
from nagphormer.tokens import cpu, hop2token, inputs, job, slices, store
from nagphormer.tokens.slices import SlicePlan, column_bytes

WIDE = random_graph(120, 150, seed=4)


def relative_error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def content(folder):
    return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    """These tests compare bits, so a GPU must not step in; test_gpu.py compares the two."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_two_hops_on_a_path_of_four_by_hand():
    # Â of the path 0-1-2-3: degrees with loops are 2, 3, 3, 2
    half, third, sixth = 1 / 2, 1 / 3, 1 / np.sqrt(6)
    first = [half, sixth, 0, 0]  # Â e_0
    second = [half * half + sixth * sixth, half * sixth + third * sixth, third * sixth, 0]
    tokens = hop_tokens(path_graph(4, features=np.eye(4)[:, :1]), 2, dtype="float32")
    np.testing.assert_allclose(tokens[:][:, :, 0].T, [[1, 0, 0, 0], first, second], rtol=1e-6)


def test_a_weighted_hop_by_hand():
    # one edge of weight 3: degrees with loops are 4 and 4, so Â = [[1, 3], [3, 1]] / 4
    graph = from_scipy(np.array([[0, 3.0], [0, 0]]), np.array([[1.0], [0.0]]))
    assert hop_tokens(graph, 2, dtype="float32")[:][:, :, 0].tolist() == [[1, 0.25, 0.625], [0, 0.75, 0.375]]


@pytest.mark.parametrize("weighted", [False, True])
def test_hop_zero_is_the_input(weighted):
    graph = random_graph(weighted=weighted)
    np.testing.assert_array_equal(hop_tokens(graph, 3, dtype="float32")[:][:, 0], graph.features)
    half = hop_tokens(graph, 3)[:][:, 0]
    np.testing.assert_allclose(half, graph.features, rtol=2**-11, atol=1e-6)


def test_bfloat16_rounds_hop_zero_as_torch_does():
    graph = random_graph(200, 20)
    expected = torch.from_numpy(graph.features).to(torch.bfloat16).float()
    np.testing.assert_array_equal(hop_tokens(graph, 1, dtype="bfloat16")[:][:, 0], expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("dtype", "accepted"), [("float32", 1e-6), ("float16", 5e-4), ("bfloat16", 4e-3)])
def test_ten_hops_equal_scipy_in_float64(weighted, dtype, accepted):
    graph = random_graph(300, 40, seed=2, weighted=weighted)
    expected = reference.hop_tokens(graph, 10)
    tokens = hop_tokens(graph, 10, dtype=dtype)[:]
    for hop in range(11):
        assert relative_error(tokens[:, hop], expected[:, hop]) < accepted
    if dtype == "float32":
        np.testing.assert_allclose(tokens, expected, rtol=1e-6, atol=2e-6)


def test_a_graph_with_communities_and_hubs_equals_scipy_in_float64():
    graph = synthetic_graph(2000, 20_000, 33, 4)
    assert relative_error(hop_tokens(graph, 10)[:], reference.hop_tokens(graph, 10)) < 5e-4


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), weighted=st.booleans(), hops=st.integers(0, 4))
def test_permuting_nodes_permutes_tokens(seed, weighted, hops):
    graph = random_graph(40, 5, seed, weighted)
    order = np.random.default_rng(seed).permutation(40)
    permuted = from_scipy(graph.adjacency()[order][:, order], graph.features[order])
    for dtype, tolerance in (("float32", 2e-6), ("float16", 2e-3)):
        tokens = hop_tokens(graph, hops, dtype=dtype)[:]
        np.testing.assert_allclose(hop_tokens(permuted, hops, dtype=dtype)[:], tokens[order], tolerance, tolerance)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), hops=st.integers(0, 4), dtype=st.sampled_from(["float16", "bfloat16", "float32"]))
def test_columns_never_mix(seed, hops, dtype):
    graph = random_graph(40, 20, seed)
    alone = from_scipy(graph.adjacency(), graph.features[:, 13:14])
    together = hop_tokens(graph, hops, dtype=dtype)[:]
    np.testing.assert_array_equal(hop_tokens(alone, hops, dtype=dtype)[:], together[:, :, 13:14])


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_few_hops_are_the_first_of_many(hops):
    graph = random_graph(50, 20)
    for dtype in store.STORED:
        few, many = hop_tokens(graph, hops, dtype=dtype), hop_tokens(graph, 5, dtype=dtype)
        assert few.shape == (50, hops + 1, 20)
        np.testing.assert_array_equal(few[:], many[:][:, : hops + 1])


def test_isolated_nodes_keep_their_own_features_at_every_hop():
    graph = from_scipy(sp.block_diag([path_graph(3).adjacency(), sp.csr_array((2, 2))]), np.eye(5) * 3)
    for dtype in store.STORED:
        tokens = hop_tokens(graph, 4, dtype=dtype)[:]
        for node in (3, 4):
            assert (tokens[node] == np.eye(5)[node] * 3).all()


def test_a_graph_without_edges_repeats_its_features():
    graph = from_scipy(sp.csr_array((5, 5)), np.arange(10).reshape(5, 2))
    np.testing.assert_array_equal(hop_tokens(graph, 2), np.repeat(graph.features[:, None], 3, axis=1))


def test_a_graph_of_one_node_has_tokens():
    assert hop_tokens(from_scipy(sp.csr_array((1, 1)), [[2.0, 3.0]]), 2)[:].tolist() == [[[2, 3]] * 3]


def test_a_graph_without_features_propagates_its_degrees():
    graph = star_graph(5)
    tokens = hop_tokens(graph, 2, dtype="float32")
    assert tokens.shape == (6, 3, 1)
    expected = reference.hop_tokens(graph, 2, np.log1p(graph.degrees)[:, None])
    np.testing.assert_allclose(tokens, expected, rtol=1e-6)


def test_features_without_columns_count_as_no_features():
    graph = path_graph(4, features=np.zeros((4, 0)))
    np.testing.assert_array_equal(hop_tokens(graph, 2), hop_tokens(path_graph(4), 2))


@pytest.mark.parametrize("scaling", ["none", "standardize", "row"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sparse_features_give_the_same_bits_as_dense_ones(scaling, dtype):
    dense = WIDE.features * (WIDE.features > 1)
    results = [
        hop_tokens(from_scipy(WIDE.adjacency(), features), 2, dtype=dtype, feature_scaling=scaling)[:]
        for features in (dense, sp.csr_array(dense))
    ]
    np.testing.assert_array_equal(*results)


def test_memory_mapped_graphs_give_the_same_bits(tmp_path):
    WIDE.save(tmp_path / "graph")
    np.testing.assert_array_equal(hop_tokens(load_graph(tmp_path / "graph"), 2), hop_tokens(WIDE, 2))


def test_standardized_features_equal_numpy():
    x = WIDE.features.astype(np.float64)
    expected = reference.hop_tokens(WIDE, 3, (x - x.mean(axis=0)) / x.std(axis=0))
    tokens = hop_tokens(WIDE, 3, dtype="float32", feature_scaling="standardize")
    np.testing.assert_allclose(tokens, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(tokens.manifest.statistics["mean"], x.mean(axis=0), atol=1e-12)


def test_row_scaled_features_equal_numpy():
    x = WIDE.features.astype(np.float64)
    expected = reference.hop_tokens(WIDE, 3, x / np.abs(x).sum(axis=1, keepdims=True))
    tokens = hop_tokens(WIDE, 3, dtype="float32", feature_scaling="row")
    np.testing.assert_allclose(tokens, expected, rtol=1e-5, atol=1e-7)


def test_the_encoding_is_propagated_beside_the_features():
    graph = random_graph(60, 7, seed=2)
    tokens = hop_tokens(graph, 3, encoding_dim=4, dtype="float32")
    assert tokens.shape == (60, 4, 11)
    both = np.hstack([graph.features, laplacian_encoding(graph, 4, device="cpu")])
    np.testing.assert_array_equal(tokens[:][:, 0], both)
    np.testing.assert_allclose(tokens, reference.hop_tokens(graph, 3, both), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("size", [1e-36, 1e-5, 1.0, 1e5, 1e30])
@pytest.mark.parametrize(("dtype", "accepted"), [("float16", 1e-3), ("bfloat16", 4e-3), ("float32", 1e-6)])
def test_columns_of_any_size_keep_their_precision_after_ten_hops(size, dtype, accepted):
    graph = random_graph(300, 6, seed=2)
    graph = from_scipy(graph.adjacency(), graph.features * np.array([size, 1, 1, 1, 1, 0], np.float32))
    tokens, expected = hop_tokens(graph, 10, dtype=dtype)[:], reference.hop_tokens(graph, 10)
    assert np.isfinite(tokens).all()
    for hop in range(11):
        assert relative_error(tokens[:, hop, 0], expected[:, hop, 0]) < accepted
    assert not tokens[:, :, 5].any()


def test_eigenvectors_of_a_large_graph_keep_their_precision_in_float16():
    graph = synthetic_graph(20_000, 60_000, 1, 2)
    column = np.random.default_rng(0).standard_normal((20_000, 1)).astype(np.float32)
    column /= np.linalg.norm(column)  # entries of size 1/√N
    graph = from_scipy(graph.adjacency(), column)
    assert relative_error(hop_tokens(graph, 10)[:][:, 10], reference.hop_tokens(graph, 10)[:, 10]) < 1e-3


def test_a_hub_with_100_000_leaves_does_not_overflow_float16():
    graph = star_graph(100_000, features=np.full((100_001, 1), 60_000.0))
    tokens, expected = hop_tokens(graph, 3)[:], reference.hop_tokens(graph, 3)
    assert np.isfinite(tokens).all()
    np.testing.assert_allclose(tokens, expected, rtol=2e-3)
    assert expected[0, 1, 0] > 1e7  # the hub's own token would not fit without a scale


def test_a_hub_with_heavy_edges_does_not_overflow_float16():
    adjacency = star_graph(1000).adjacency() * 1e6
    graph = from_scipy(adjacency, np.full((1001, 1), 1e5))
    np.testing.assert_allclose(hop_tokens(graph, 3), reference.hop_tokens(graph, 3), rtol=2e-3)


# The same bytes, however the work is cut


def slices_of(num_columns, hops=3, itemsize=2):
    return lambda _: num_columns * column_bytes(WIDE.num_nodes, hops, itemsize)


CUTS = {
    "narrow slices": [(hop2token, "usable_memory", slices_of(64))],
    "narrowest slices": [(slices, "NARROWEST", 16), (hop2token, "usable_memory", slices_of(16))],
    "scratch file": [(hop2token, "usable_memory", lambda _: 0)],
    "no tiles": [(job, "cache_bytes", lambda: 0)],
    "narrow tiles": [(job, "cache_bytes", lambda: 4 * 32 * WIDE.num_nodes)],
    "tiles in a scratch file": [
        (job, "cache_bytes", lambda: 4 * 48 * WIDE.num_nodes),
        (hop2token, "usable_memory", lambda _: -1),
    ],
    "uneven plan": [(job, "plan_slices", lambda *_: SlicePlan(96, 32, False))],
    "small pieces": [(job, "PIECE_BYTES", 1), (inputs, "PIECE_VALUES", 1)],
    "small pieces of narrow slices": [(job, "PIECE_BYTES", 1), (hop2token, "usable_memory", slices_of(64))],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_stores_have_the_same_bytes_however_work_is_cut(cut, dtype, tmp_path, monkeypatch):
    hop_tokens(WIDE, 3, dtype=dtype, out=tmp_path / "whole")
    for module, name, value in CUTS[cut]:
        monkeypatch.setattr(module, name, value)
    hop_tokens(WIDE, 3, dtype=dtype, out=tmp_path / "cut")
    assert content(tmp_path / "cut") == content(tmp_path / "whole")
    assert set(content(tmp_path / "cut")) == {"manifest.json", "block-000.bin"}


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_few_hops_can_go_through_a_scratch_file(hops, tmp_path, monkeypatch):
    expected = np.asarray(hop_tokens(WIDE, hops))
    monkeypatch.setattr(hop2token, "usable_memory", lambda _: 0)
    np.testing.assert_array_equal(hop_tokens(WIDE, hops, out=tmp_path / "store"), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("in_memory", [False, True])
def test_blocks_hold_the_same_tokens_as_one(dtype, in_memory, tmp_path, monkeypatch):
    whole = hop_tokens(WIDE, 3, encoding_dim=3, dtype=dtype)
    monkeypatch.setattr(store, "BLOCK_BYTES", 40 * WIDE.num_nodes * whole.blocks[0].itemsize)
    blocked = hop_tokens(WIDE, 3, encoding_dim=3, dtype=dtype, out=None if in_memory else tmp_path / "store")
    assert [block.shape[2] for block in blocked.blocks] == [32, 32, 32, 32, 25]
    np.testing.assert_array_equal(blocked[:], whole[:])
    np.testing.assert_array_equal(blocked[[3, 1]], whole[[3, 1]])
    if not in_memory:
        blocked.verify()


def test_blocks_can_be_sliced_and_spilled_too(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BLOCK_BYTES", 70 * WIDE.num_nodes * 2)
    hop_tokens(WIDE, 3, out=tmp_path / "whole")
    monkeypatch.setattr(slices, "NARROWEST", 16)
    monkeypatch.setattr(hop2token, "usable_memory", slices_of(32))
    hop_tokens(WIDE, 3, out=tmp_path / "sliced")
    monkeypatch.setattr(hop2token, "usable_memory", lambda _: 0)
    hop_tokens(WIDE, 3, out=tmp_path / "spilled")
    assert len(content(tmp_path / "whole")) == 4
    assert content(tmp_path / "sliced") == content(tmp_path / "spilled") == content(tmp_path / "whole")


def test_one_thread_writes_the_same_bytes_as_two(tmp_path):
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("needs a machine with two processor cores")
    before = numba.get_num_threads()
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            hop_tokens(WIDE, 3, encoding_dim=3, out=tmp_path / str(threads))
    finally:
        numba.set_num_threads(before)
    assert content(tmp_path / "1") == content(tmp_path / "2")


def test_a_budget_changes_no_byte(tmp_path):
    hop_tokens(WIDE, 3, out=tmp_path / "free")
    hop_tokens(WIDE, 3, out=tmp_path / "bounded", memory=device.anonymous_memory() + device.RESERVE + 100_000)
    assert content(tmp_path / "free") == content(tmp_path / "bounded")


# Bad input and failures


@pytest.fixture
def no_work(monkeypatch):
    """Fails the test when any work is begun."""

    def begin(*_, **__):
        pytest.fail("work was begun")

    for name in ("Columns", "find_exponents", "Job"):
        monkeypatch.setattr(hop2token, name, begin)
    monkeypatch.setattr("nagphormer.tokens.laplacian.solve", begin)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hops": -1}, "hops must be 0 or more, not -1"),
        ({"encoding_dim": -2}, "encoding_dim must be 0 or more, not -2"),
        ({"dtype": "float8"}, r"unknown dtype 'float8': use float16, bfloat16 or float32"),
        ({"dtype": "flaot16"}, "Did you mean 'float16'"),
        ({"feature_scaling": "minmax"}, "unknown feature_scaling 'minmax'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "cuda"}, "torch sees no GPU"),
        ({"memory": "4XB"}, "cannot read '4XB' as a size"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(wrong, message, no_work, tmp_path):
    for out in (None, tmp_path / "store"):
        with pytest.raises(UserError, match=message):
            hop_tokens(WIDE, **({"hops": 2, "encoding_dim": 1, "out": out} | wrong))
    assert list(tmp_path.iterdir()) == []


def test_hops_and_dimensions_may_be_numpy_integers(tmp_path):
    tokens = hop_tokens(random_graph(), np.int64(2), encoding_dim=np.int32(1), out=tmp_path / "store")
    assert tokens.shape == (60, 3, 8)
    assert hop_tokens(random_graph(), 2, encoding_dim=1, out=tmp_path / "store").shape == (60, 3, 8)


def test_fractions_of_a_hop_are_refused(no_work):
    with pytest.raises(UserError, match=r"hops must be a whole number, not 2\.5"):
        hop_tokens(WIDE, 2.5)


def test_a_graph_that_a_gpu_has_no_room_for_goes_through_the_cpu(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_plain_lines", True)
    graph = random_graph(300, 40, seed=2)
    for room, name in ((2**30, "cuda"), (10_000, "cpu")):
        monkeypatch.setattr(hop2token, "gpu_memory", lambda _, room=room: room)
        assert hop2token.device_for_hops(graph, 3, "cuda") == name
    assert "hops are made on the CPU" in capsys.readouterr().err


def test_a_result_beyond_the_budget_is_refused_before_any_work(no_work, monkeypatch):
    monkeypatch.setattr(hop2token, "usable_memory", lambda _: 1000)
    with pytest.raises(UserError, match=r"the tokens takes 144 kB, but the memory limit leaves 0 B .*out="):
        hop_tokens(WIDE, 3)


def test_a_budget_that_the_process_alone_exceeds_is_refused_before_any_work(no_work, tmp_path):
    with pytest.raises(UserError, match=r"memory=1MB is too little: [\d.]+ [MG]B are kept for the process itself"):
        hop_tokens(WIDE, 3, memory="1MB", out=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_an_encoding_beyond_the_budget_is_refused_before_any_work(no_work, tmp_path, monkeypatch):
    monkeypatch.setattr(hop2token, "usable_memory", lambda _: 1000)
    with pytest.raises(UserError, match=r"the search for 2 eigenvectors takes 28.8 kB, .* or lower encoding_dim"):
        hop_tokens(WIDE, 3, encoding_dim=2, out=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_leaves_no_memory_for_the_work_is_refused_before_any_work(no_work, monkeypatch):
    monkeypatch.setattr(hop2token, "usable_memory", lambda _: WIDE.num_nodes * (4 * 150 * 2 + 50) + 1000)
    with pytest.raises(UserError, match=r"120 nodes and 3 hops need at least 11\.5 kB of memory, but only 1 kB"):
        hop_tokens(WIDE, 3)


def test_too_little_free_disk_is_refused_before_any_work(no_work, tmp_path, monkeypatch):
    class Usage:
        free = 120 * 4 * 150 * 2 - 1

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    with pytest.raises(UserError, match=r"store needs 144 kB but only 144 kB is free on that disk"):
        hop_tokens(WIDE, 3, out=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_free_disk_counts_the_scratch_file(no_work, tmp_path, monkeypatch):
    class Usage:
        free = 200_000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    monkeypatch.setattr(hop2token, "usable_memory", lambda _: 0)
    with pytest.raises(UserError, match="store needs 259 kB"):
        hop_tokens(WIDE, 3, out=tmp_path / "store")


def test_a_place_that_cannot_be_written_is_refused_before_any_work(no_work, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/store", "file/deep/store"):
        with pytest.raises(UserError, match=r"cannot write|already exists"):
            hop_tokens(WIDE, 3, out=tmp_path / place)
    assert content(tmp_path) == {"file": b"mine"}


def test_a_read_only_disk_is_refused_before_any_work(no_work, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=r"cannot write .*store \(Read-only file system\)"):
        hop_tokens(WIDE, 3, out=tmp_path / "store")


def test_a_folder_with_other_files_is_refused_and_left_alone(no_work, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        hop_tokens(WIDE, 3, out=tmp_path)
    assert content(tmp_path) == {"notes.txt": b"mine"}


def test_an_empty_folder_is_filled(tmp_path):
    assert hop_tokens(WIDE, 1, out=tmp_path).path == tmp_path


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize("place", ["run", "pack"])
@pytest.mark.parametrize("spilled", [False, True])
def test_a_failure_in_the_middle_leaves_nothing_behind(error, place, spilled, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    if spilled:
        monkeypatch.setattr(hop2token, "usable_memory", lambda _: 0)
    monkeypatch.setattr(cpu.HopSlice, place, fail)
    with pytest.raises(type(error)):
        hop_tokens(WIDE, 3, out=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_named_and_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "_write_all", full)
    with pytest.raises(UserError, match="the disk filled up while writing"):
        hop_tokens(WIDE, 3, out=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_attempt_can_be_repeated(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(cpu.HopSlice, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            hop_tokens(WIDE, 3, out=tmp_path / "store")
    hop_tokens(WIDE, 3, out=tmp_path / "store").verify()


def test_labels_and_splits_do_not_make_another_store(tmp_path):
    adjacency = random_adjacency(60, 0)
    plain = from_scipy(adjacency, labels=np.arange(60) % 3)
    hop_tokens(plain, 1, out=tmp_path / "store")
    hop_tokens(plain.with_splits(train=[0, 1]), 1, out=tmp_path / "store")


def test_tokens_that_another_process_wrote_meanwhile_are_taken(tmp_path, monkeypatch):
    graph = synthetic_graph(50, 100, 4, 2)
    compute = hop2token._make

    def outrun(*arguments):
        compute(*arguments)
        return compute(*arguments)

    def check_nothing(target):
        pass

    monkeypatch.setattr(hop2token, "_make", outrun)
    monkeypatch.setattr("nagphormer.files.check_vacant", check_nothing)
    assert np.array_equal(np.asarray(hop_tokens(graph, 2, out=tmp_path / "a")), np.asarray(hop_tokens(graph, 2)))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
