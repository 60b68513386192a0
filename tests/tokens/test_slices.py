import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import path_graph, random_graph

from nagphormer import UserError, synthetic_graph
from nagphormer.tokens import slices
from nagphormer.tokens.engine import LANES
from nagphormer.tokens.slices import NARROWEST, SlicePlan, column_bytes, plan_slices

MANY = 10**12

problems = {
    "num_nodes": st.integers(1, 10**6),
    "block_width": st.integers(1, 800),
    "hops": st.integers(0, 12),
    "itemsize": st.sampled_from([2, 4]),
    "cache": st.integers(0, 10**8),
}


@settings(deadline=None, max_examples=300)
@given(**problems, usable=st.integers(-(10**9), 10**10))
def test_a_plan_in_memory_keeps_the_budget(num_nodes, block_width, hops, itemsize, cache, usable):
    plan = plan_slices(num_nodes, block_width, hops, itemsize, usable, may_spill=True, cache=cache)
    if not plan.on_disk:
        assert plan.width * column_bytes(num_nodes, hops, itemsize) <= usable


@pytest.mark.parametrize("columns", [64, 80, 96, 112, 128, 144])
def test_a_tile_for_the_cache_never_widens_a_slice_beyond_the_budget(columns):
    usable = columns * column_bytes(1000, 3, 2)
    for tile in range(LANES, 200, LANES):
        plan = plan_slices(1000, 400, 3, 2, usable, may_spill=True, cache=2 * 1000 * 2 * tile)
        assert plan.width <= columns


@settings(deadline=None, max_examples=300)
@given(**problems, usable=st.integers(-(10**9), 10**10))
def test_plans_are_made_of_whole_tiles_and_vectors(num_nodes, block_width, hops, itemsize, cache, usable):
    plan = plan_slices(num_nodes, block_width, hops, itemsize, usable, may_spill=True, cache=cache)
    assert plan.tile % LANES == plan.width % plan.tile == 0
    assert 0 < plan.tile <= plan.width


def test_a_block_that_fits_is_one_slice_and_without_a_cache_one_tile():
    assert plan_slices(1000, 100, 3, 2, MANY, may_spill=False, cache=0) == SlicePlan(112, 112, False)


def test_tiles_fit_half_the_cache_by_hand():
    # 1000 nodes in float16: a column is 2 kB, so half of 256 kB holds 64 columns
    assert plan_slices(1000, 128, 3, 2, MANY, may_spill=False, cache=256_000) == SlicePlan(128, 64, False)


def test_a_cache_too_small_for_one_line_a_row_is_ignored():
    assert plan_slices(10**6, 128, 3, 2, MANY, may_spill=False, cache=10**6).tile == 128


def test_slices_are_of_equal_width():
    usable = 100 * column_bytes(1000, 3, 2)
    assert plan_slices(1000, 160, 3, 2, usable, may_spill=True, cache=0) == SlicePlan(80, 80, False)


def test_too_little_memory_goes_to_disk_or_is_refused_with_what_is_needed():
    usable = (NARROWEST - 1) * column_bytes(10**6, 3, 2)
    assert plan_slices(10**6, 200, 3, 2, usable, may_spill=True, cache=0).on_disk
    narrow = plan_slices(10**6, 200, 3, 2, usable, may_spill=False, cache=0)
    assert not narrow.on_disk
    assert narrow.width < NARROWEST
    with pytest.raises(UserError, match=r"1,000,000 nodes and 3 hops need at least 96 MB"):
        plan_slices(10**6, 200, 3, 2, 10**6, may_spill=False, cache=0)


def test_a_narrow_block_needs_no_more_than_its_own_width():
    assert not plan_slices(1000, 10, 3, 2, LANES * column_bytes(1000, 3, 2), may_spill=False, cache=0).on_disk


def test_the_first_two_hops_need_as_much_as_two():
    assert column_bytes(10, 0, 2) == column_bytes(10, 1, 2) == column_bytes(10, 2, 2) == 40
    assert column_bytes(10, 3, 4) == 120


def test_adjacency_bytes_by_hand():
    assert slices.adjacency_bytes(path_graph(4)) == 5 * 8 + 6 * 4
    weighted = random_graph(weighted=True)
    assert slices.adjacency_bytes(weighted) == 61 * 8 + 8 * len(weighted.indices)


BUDGET_SCRIPT = """
import sys, threading, time
from nagphormer import hop_tokens, load_graph
from nagphormer.device import anonymous_memory
peak = 0
def watch():
    global peak
    while True:
        peak = max(peak, anonymous_memory())
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
hop_tokens(load_graph(sys.argv[1]), 10, encoding_dim=15, out=sys.argv[2], memory=sys.argv[3], device="cpu")
print(peak)
"""


@pytest.mark.slow
def test_a_memory_budget_is_kept(tmp_path):
    num_nodes = 100_000
    synthetic_graph(num_nodes, 300_000, 192, 4).save(tmp_path / "graph")
    command = [sys.executable, "-c", BUDGET_SCRIPT, tmp_path / "graph"]
    free = subprocess.run([*command, tmp_path / "free", "8GB"], check=True, capture_output=True, text=True).stdout
    tight = subprocess.run([*command, tmp_path / "tight", "430MB"], check=True, capture_output=True, text=True).stdout
    assert int(tight) <= 430 * 10**6 < int(free)  # without the budget it takes more, so the budget did something
