"""What this process computes on: its processor or GPU, and how much memory it may take.

`machine` is asked once, at the top of a piece of work; below it a device is a name such as `cpu` or `cuda:1`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nagphormer.errors import UserError
from nagphormer.files import format_size, parse_size

if TYPE_CHECKING:
    import torch

RESERVE = 150 * 10**6
"""Bytes left for compiled code, pieces of rows on their way to disk, and the interpreter's own needs."""


@dataclass(frozen=True)
class Machine:
    """What decisions about a piece of work depend on; numbers only, so that they can be made up."""

    device: str
    """Where the network runs."""
    memory: int
    """Bytes of main memory that can be had."""
    gpu_memory: int
    """Bytes of the GPU's memory that can be had; 0 on a CPU."""
    fast_bf16: bool
    """Whether the device multiplies bfloat16 faster than float32."""

    @property
    def on_gpu(self) -> bool:
        """Whether the network runs on a GPU."""
        return self.device != "cpu"

    @property
    def room(self) -> int:
        """Bytes of memory where the network runs."""
        return self.gpu_memory if self.on_gpu else self.memory


def machine(device: str | None = None, gpu_limit: str | int | None = None) -> Machine:
    """This process's device and memory; makes the device torch's own and sets the limit.

    Args:
        device: the one named, else a GPU where there is one; under `torchrun`, each rank has one of its own.
        gpu_limit: GPU memory to take at most, such as `8GB`.
    """
    name = _of_rank(resolve_device(device))
    _limit_gpu_memory(gpu_limit, name)
    import torch

    if name == "cpu":
        can = torch.cpu.get_capabilities()
        return Machine(name, available_memory(), 0, bool(can.get("avx512_bf16") or can.get("amx_bf16")))
    fast = torch.cuda.get_device_capability(name)[0] >= 8
    return Machine(name, available_memory(), gpu_memory(name), fast)


def resolve_device(device: str | None) -> str:
    """The device to work on: the one named, else a GPU where there is one.

    A GPU that is named by its number becomes torch's current one: streams and events belong to that.
    """
    if device == "cpu":
        return device
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not isinstance(device, str) or kind(device) != "cuda":
        raise UserError(f"unknown device {device!r}: use cpu, cuda or cuda:0")
    if not torch.cuda.is_available():
        raise UserError(f"device {device!r} was asked for, but torch sees no GPU: use device='cpu'")
    if ":" in device:
        number, count = device.split(":")[1], torch.cuda.device_count()
        if not number.isdigit() or int(number) >= count:
            raise UserError(f"there is no device {device!r}: torch sees {count}, so use cuda:0 to cuda:{count - 1}")
        torch.cuda.set_device(device)
    return device


def kind(device: str) -> str:
    """`cpu` or `cuda`, without a number."""
    return device.partition(":")[0]


def _of_rank(device: str) -> str:
    """The device itself; under `torchrun`, where all ranks are given the same, the GPU of this one."""
    if device == "cpu" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return device
    import torch

    if device != "cuda":
        raise UserError(f"device {device!r} is one GPU for all ranks: use device='cuda', and each takes its own")
    number, available = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if number >= available:
        raise UserError(f"rank {number} of this machine has no GPU of its own: start at most {available} ranks on it")
    torch.cuda.set_device(number)
    return f"cuda:{number}"


def available_memory() -> int:
    """Bytes of memory that can be had without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def anonymous_memory() -> int:
    """Bytes of memory this process holds that are not backed by a file."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 200 * 10**6


def usable_memory(memory: str | int | None) -> int:
    """Bytes we may still allocate: what the budget leaves, else three quarters of what is available."""
    if memory is None:
        return available_memory() * 3 // 4 - RESERVE
    held = anonymous_memory() + RESERVE
    if parse_size(memory) <= held:
        raise UserError(f"memory={memory} is too little: {format_size(held)} are kept for the process itself")
    return parse_size(memory) - held


def cache_bytes() -> int:
    """Size of the last-level cache, as far as the system says."""
    caches = Path("/sys/devices/system/cpu/cpu0/cache")
    try:
        sizes = [parse_size((index / "size").read_text().strip() + "iB") for index in caches.glob("index*")]
    except (OSError, UserError):
        sizes = []
    return max(sizes, default=16 * 2**20)


_gpu_limit: int | None = None


def _limit_gpu_memory(memory: str | int | None, device: str) -> None:
    """Let this process take no more of a GPU's memory than this; None sets no limit."""
    global _gpu_limit
    if memory is None:
        return
    if device == "cpu":
        raise UserError(f"gpu_memory={memory} was asked for, but there is no GPU to use: leave it out")
    import torch

    _gpu_limit = parse_size(memory)
    total = torch.cuda.mem_get_info(device)[1]
    # here a name without a number is an error; None is the one in use
    torch.cuda.set_per_process_memory_fraction(min(1.0, _gpu_limit / total), torch.device(device).index)


def gpu_memory(device: str) -> int:
    """Bytes of GPU memory we may still take: most of what is free, or of what the limit leaves; to be asked rarely."""
    import torch

    torch.cuda.empty_cache()  # what is still reserved then is used, or belongs to a captured step
    free = torch.cuda.mem_get_info(device)[0]
    if _gpu_limit is not None:
        free = min(free, _gpu_limit - torch.cuda.memory_reserved(device))
    return max(0, int(free * 0.85))


def autocast(device: str, precision: str) -> "torch.autocast":
    """Products in bfloat16 where the precision asks for it; sums of losses and weights stay float32."""
    import torch

    return torch.autocast(kind(device), torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def memory_explained(work: str, advice: str) -> Iterator[None]:
    """Turn running out of memory into a message that says what to lower."""
    import torch

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        gpu = isinstance(error, torch.cuda.OutOfMemoryError)
        if not (gpu or isinstance(error, MemoryError) or "can't allocate memory" in str(error)):
            raise
        raise UserError(f"out of {'GPU ' if gpu else ''}memory while {work}: {advice}") from error
