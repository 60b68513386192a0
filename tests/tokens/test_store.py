import json
import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import random_graph

from nagphormer import TokenStore, UserError, hop_tokens
from nagphormer.files import checksum
from nagphormer.tokens import store as store_module
from nagphormer.tokens.store import MANIFEST, BlockWriter, block_columns

GRAPH = random_graph(60, 7)


@pytest.fixture
def path(tmp_path):
    hop_tokens(GRAPH, 2, out=tmp_path / "tokens")
    return tmp_path / "tokens"


def edit_manifest(path, **changes):
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps(manifest | changes))


def test_an_opened_store_equals_the_one_in_memory(path):
    opened, held = TokenStore.open(path), hop_tokens(GRAPH, 2)
    assert opened.shape == held.shape == (60, 3, 7)
    assert (opened.dtype, opened.hops, len(opened)) == ("float16", 2, 60)
    assert opened.path == path
    assert held.path is None
    np.testing.assert_array_equal(opened, held)


def test_an_opened_store_is_memory_mapped(path):
    assert all(isinstance(block, np.memmap) for block in TokenStore.open(path).blocks)


@pytest.mark.parametrize(
    "nodes",
    [slice(None), slice(5, 50, 3), [3], [5, 5, 0, -1], np.array([7, 2]), np.arange(60) % 3 == 0, []],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_any_choice_of_nodes_equals_that_part_of_the_whole(nodes, dtype):
    store = hop_tokens(GRAPH, 2, dtype=dtype)
    whole = np.asarray(store)
    assert whole.dtype == np.float32
    np.testing.assert_array_equal(store[nodes], whole[nodes if len(np.shape(nodes)) or nodes else []])


@pytest.mark.parametrize("block_bytes", [store_module.BLOCK_BYTES, 400])
def test_one_integer_gives_the_tokens_of_one_node(block_bytes, monkeypatch):
    monkeypatch.setattr(store_module, "BLOCK_BYTES", block_bytes)
    store = hop_tokens(GRAPH, 2)
    for node in (4, np.int64(4), np.array(4), -56):
        np.testing.assert_array_equal(store[node], np.asarray(store)[4])


def test_positions_out_of_range_are_an_index_error(path):
    with pytest.raises(IndexError):
        TokenStore.open(path)[[60]]


def test_what_is_read_can_be_changed_without_changing_the_store(path):
    for store in (TokenStore.open(path), hop_tokens(GRAPH, 2, dtype="float32")):
        before = np.asarray(store)
        tokens = store[:]
        tokens += 1
        np.testing.assert_array_equal(store, before)


def test_arrays_of_another_type_can_be_asked_for():
    store = hop_tokens(GRAPH, 2)
    assert np.asarray(store, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        np.array(store, copy=False)


def test_the_manifest_says_what_the_store_holds_and_has_no_date(path):
    manifest = json.loads((path / MANIFEST).read_text())
    assert manifest["shape"] == [60, 3, 7]
    assert (manifest["dtype"], manifest["hops"], manifest["encoding_dim"]) == ("float16", 2, 0)
    assert manifest["graph"] == GRAPH.fingerprint
    assert len(manifest["column_exponents"]) == 7
    assert [block["sha256"] for block in manifest["blocks"]] == [checksum(path / "block-000.bin")]
    assert set(manifest["versions"]) == {"nagphormer"}
    assert "20" + time.strftime("%y-%m") not in (path / MANIFEST).read_text()


def test_repr_names_shape_type_and_place(path):
    assert repr(TokenStore.open(path)) == f"TokenStore(shape=(60, 3, 7), dtype='float16', path={str(path)!r})"
    assert repr(hop_tokens(GRAPH, 2)) == "TokenStore(shape=(60, 3, 7), dtype='float16', path=None)"


def test_a_truncated_block_is_refused_when_opened(path):
    os.truncate(path / "block-000.bin", 100)
    with pytest.raises(UserError, match=r"block-000.bin has 100 bytes instead of 2,520: it was cut short"):
        TokenStore.open(path)
    with pytest.raises(UserError, match="cut short"):
        hop_tokens(GRAPH, 2, out=path)


def test_a_missing_block_is_refused_when_opened(path):
    (path / "block-000.bin").unlink()
    with pytest.raises(UserError, match="missing"):
        TokenStore.open(path)


def test_a_flipped_byte_is_found_by_verify(path):
    store = TokenStore.open(path)
    store.verify()
    content = bytearray((path / "block-000.bin").read_bytes())
    content[1000] ^= 1
    (path / "block-000.bin").write_bytes(content)
    with pytest.raises(UserError, match="corrupt"):
        TokenStore.open(path).verify()


def test_verifying_a_store_in_memory_does_nothing():
    hop_tokens(GRAPH, 2).verify()


@pytest.mark.parametrize("damage", ["", "{", "[]", "\xff\xfe", '{"kind": "graph", "format": 1}'])
def test_a_damaged_manifest_is_refused(path, damage):
    (path / MANIFEST).write_text(damage, encoding="latin-1")
    with pytest.raises(UserError, match=r"damaged|not a tokens folder"):
        TokenStore.open(path)


def test_a_store_of_another_format_is_refused(path):
    edit_manifest(path, format=99)
    with pytest.raises(UserError, match="format 99 but this version reads 2"):
        TokenStore.open(path)


def test_what_is_no_store_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    for wrong in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(UserError, match="is not a tokens folder"):
            TokenStore.open(wrong)


def test_a_store_of_the_same_graph_and_settings_is_reused(path, monkeypatch):
    before = {file.name: file.stat().st_mtime_ns for file in path.iterdir()}
    monkeypatch.setattr("nagphormer.tokens.hop2token.Job", None)  # no work may start
    again = hop_tokens(GRAPH, 2, out=str(path), memory="1GB", device="cpu")
    assert again.shape == (60, 3, 7)
    assert {file.name: file.stat().st_mtime_ns for file in path.iterdir()} == before


def test_a_store_of_another_graph_is_refused(path):
    with pytest.raises(UserError, match="holds tokens of another graph"):
        hop_tokens(random_graph(60, 7, seed=5), 2, out=path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hops": 3}, "hops=2, not 3"),
        ({"encoding_dim": 2}, "encoding_dim=0, not 2"),
        ({"dtype": "float32"}, "dtype='float16', not 'float32'"),
        ({"feature_scaling": "row"}, "feature_scaling='none', not 'row'"),
    ],
)
def test_a_store_with_other_settings_is_refused(path, settings, message):
    with pytest.raises(UserError, match=message):
        hop_tokens(GRAPH, **({"hops": 2, "out": path} | settings))
    TokenStore.open(path).verify()


@settings(deadline=None, max_examples=50)
@given(num_nodes=st.integers(1, 10**9), width=st.integers(1, 9000), dtype=st.sampled_from(["float16", "float32"]))
def test_blocks_cover_every_column_once(num_nodes, width, dtype):
    blocks = block_columns(num_nodes, width, dtype)
    assert [column for first, last in blocks for column in range(first, last)] == list(range(width))
    itemsize = 2 if dtype == "float16" else 4
    assert all(
        (last - first) * num_nodes * itemsize <= max(store_module.BLOCK_BYTES, num_nodes * 4) for first, last in blocks
    )


def test_wide_blocks_begin_at_whole_vectors(monkeypatch):
    monkeypatch.setattr(store_module, "BLOCK_BYTES", 2 * 10 * 40)
    assert block_columns(10, 100, "float16") == [(0, 32), (32, 64), (64, 96), (96, 100)]
    assert block_columns(10, 50, "float32") == [(0, 16), (16, 32), (32, 48), (48, 50)]
    assert block_columns(10**6, 3, "float16") == [(0, 1), (1, 2), (2, 3)]


def test_a_second_pass_waits_for_what_the_first_one_wrote(tmp_path, monkeypatch):
    def slow_backwards(file, data, offset):
        half = len(data) // 2
        os.pwrite(file, data[half:], offset + half)
        time.sleep(0.1)
        os.pwrite(file, data[:half], offset)

    monkeypatch.setattr(store_module, "_write_all", slow_backwards)
    with BlockWriter(tmp_path / "block", (50, 1, 2), "float32") as writer:
        piece = writer.buffer(0, 50, refill=False)
        piece[...] = 7
        writer.write(piece, 0, final=False)
        assert (writer.buffer(0, 50, refill=True) == 7).all()


def test_the_checksum_of_several_passes_is_that_of_the_file(tmp_path):
    with BlockWriter(tmp_path / "block", (40, 2, 3), "float32") as writer:
        for column in range(3):
            for start in (0, 25):
                piece = writer.buffer(start, min(start + 25, 40), refill=column > 0)
                piece[:, :, column] = column + start
                writer.write(piece, start, final=column == 2)
        entry = writer.finish()
    assert entry == {"bytes": 40 * 2 * 3 * 4, "sha256": checksum(tmp_path / "block")}
    written = np.fromfile(tmp_path / "block", np.float32).reshape(40, 2, 3)
    np.testing.assert_array_equal(written[30], [[25, 26, 27], [25, 26, 27]])


def test_a_piece_is_not_filled_anew_while_it_is_being_written(tmp_path, monkeypatch):
    write = store_module._write_all
    monkeypatch.setattr(store_module, "_write_all", lambda *given: time.sleep(0.05) or write(*given))
    with BlockWriter(tmp_path / "block", (8, 1, 3), "float32") as writer:
        for start in range(0, 8, 2):
            piece = writer.buffer(start, start + 2, refill=False)
            piece[:] = start
            writer.write(piece, start, final=True)
        writer.finish()
    assert np.fromfile(tmp_path / "block", np.float32)[::3].tolist() == [0, 0, 2, 2, 4, 4, 6, 6]


def test_column_scales_are_undone():
    graph = random_graph(60, 7)
    np.testing.assert_allclose(hop_tokens(graph, 2)[:][:, 0], graph.features, rtol=1e-3, atol=1e-6)


def test_float32_tokens_that_are_read_are_a_copy():
    store = hop_tokens(random_graph(60, 7), 2, dtype="float32", device="cpu")
    stored = store.blocks[0].copy()
    tokens = store[:]
    tokens += 1
    np.testing.assert_array_equal(store.blocks[0], stored)
