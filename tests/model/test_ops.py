"""Which work the GPU's kernels are used for; that they equal the plain lines is shown in `test_kernels.py`."""

from types import SimpleNamespace

import pytest
import torch

from nagphormer.model import kernels, ops


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch):
    monkeypatch.setattr(ops, "_compiled", set())


def test_small_work_is_not_compiled_for_and_the_caller_finds_all_as_it_was(monkeypatch):
    monkeypatch.setattr(kernels, "triton", object())
    seen = []
    for values, shape in ((ops.REPAID / 2, 8), (ops.REPAID, 8), (1, 8), (1, 16)):
        with ops.enough_work(values, shape):
            seen.append(ops._enough)
        assert not ops._enough
    assert seen == [False, True, True, False]


def test_without_triton_no_work_is_enough(monkeypatch):
    monkeypatch.setattr(kernels, "triton", None)
    with ops.enough_work(1e30, 8):
        assert not ops._enough


def test_the_cpu_has_no_use_for_them(monkeypatch):
    monkeypatch.setattr(kernels, "triton", object())
    with ops.enough_work(1e30, 8):
        assert ops._enough
        assert not ops.fused(torch.zeros(2))
        assert not ops.captured(torch.zeros(2))


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_what_torch_records_takes_the_plain_path(monkeypatch):
    monkeypatch.setattr(ops, "_enough", True)
    on_gpu, seen = SimpleNamespace(is_cuda=True, dtype=torch.float32), []
    torch.jit.trace(lambda x: seen.append(ops.fused(on_gpu)) or x + 1, (torch.ones(2),), check_trace=False)
    assert seen == [False]
    assert ops.fused(on_gpu)
