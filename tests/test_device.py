import numpy as np
import pytest
import torch

from nagphormer import UserError, device
from nagphormer.device import Machine, machine, memory_explained, resolve_device


def test_the_cpu_is_the_device_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device(None) == "cpu"
    assert resolve_device("cpu") == "cpu"
    with pytest.raises(UserError, match="'cuda' was asked for, but torch sees no GPU"):
        resolve_device("cuda")


def test_a_gpu_is_the_device_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device(None) == "cuda"
    assert resolve_device("cuda") == "cuda"
    assert resolve_device("cpu") == "cpu"


@pytest.mark.parametrize("name", ["tpu", "gpu", "", "CUDA"])
def test_unknown_devices_are_refused(name):
    with pytest.raises(UserError, match="unknown device"):
        resolve_device(name)


def test_a_gpu_named_by_its_number_becomes_the_current_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    current = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert [resolve_device(name) for name in ("cuda:1", "cuda", "cuda:0")] == ["cuda:1", "cuda", "cuda:0"]
    assert current == ["cuda:1", "cuda:0"]
    for name in ("cuda:2", "cuda:x", "cuda:"):
        with pytest.raises(UserError, match="torch sees 2, so use cuda:0 to cuda:1"):
            resolve_device(name)


def test_a_budget_leaves_what_the_process_does_not_hold_yet(monkeypatch):
    monkeypatch.setattr(device, "anonymous_memory", lambda: 10**9)
    assert device.usable_memory("4GB") == 3 * 10**9 - device.RESERVE
    assert device.usable_memory(2 * 10**9) == 10**9 - device.RESERVE
    monkeypatch.setattr(device, "available_memory", lambda: 4 * 10**9)
    assert device.usable_memory(None) == 3 * 10**9 - device.RESERVE


@pytest.mark.parametrize("wrong", ["4XB", "lots", "0GB", "-1GB", ""])
def test_a_budget_that_is_no_size_is_refused(wrong):
    with pytest.raises(UserError, match="size"):
        device.usable_memory(wrong)


def test_the_machine_says_something_sensible():
    assert device.available_memory() > 10**6
    assert device.anonymous_memory() > 10**6
    assert 2**15 <= device.cache_bytes() < 2**36


def test_anonymous_memory_counts_what_is_allocated():
    before = device.anonymous_memory()
    held = np.ones(8_000_000)
    assert device.anonymous_memory() - before > 0.9 * held.nbytes


def test_systems_without_proc_and_sys_get_defaults(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "Path", lambda _: tmp_path / "missing")
    assert device.available_memory() > 10**6
    assert device.anonymous_memory() == 200 * 10**6
    assert device.cache_bytes() == 16 * 2**20


def test_a_machine_has_what_decisions_depend_on(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(device, "available_memory", lambda: 10**9)
    assert machine("cpu") == Machine("cpu", 10**9, 0, True)
    assert machine("cpu").room == 10**9
    for capabilities, fast in (({"amx_bf16": True}, True), ({"avx512_bf16": False}, False), ({}, False)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        assert machine("cpu").fast_bf16 is fast


def test_a_gpu_has_room_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device, "gpu_memory", lambda name: 10**10)
    for capability, fast in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda name, capability=capability: capability)
        found = machine(None)
        assert (found.device, found.on_gpu, found.room, found.fast_bf16) == ("cuda", True, 10**10, fast)


def test_a_limit_for_a_gpu_without_one_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="gpu_memory=8GB was asked for, but there is no GPU"):
        machine(None, "8GB")


def test_each_rank_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda name: (9, 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(device, "gpu_memory", lambda name: 1)
    assert machine("cuda:1").device == "cuda:1"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    with pytest.raises(UserError, match="one GPU for all ranks"):
        machine("cuda:1")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert machine("cuda").device == machine(None).device == "cuda:3"
    assert machine("cpu").device == "cpu"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="at most 2 ranks"):
        machine("cuda")


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
        MemoryError("Unable to allocate 20 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 20 bytes"),
    ],
    ids=["gpu", "numpy", "torch"],
)
def test_running_out_of_memory_says_what_to_lower(error):
    explained = memory_explained("training with batch_size=512", "lower batch_size")
    with pytest.raises(UserError, match="memory while training with batch_size=512: lower") as raised, explained:
        raise error
    assert ("GPU" in str(raised.value)) == isinstance(error, torch.cuda.OutOfMemoryError)
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes differ"), ValueError("no"), KeyboardInterrupt(), UserError("a")]
)
def test_other_errors_are_left_as_they_are(error):
    with pytest.raises(type(error)) as raised, memory_explained("training", "lower batch_size"):
        raise error
    assert raised.value is error
