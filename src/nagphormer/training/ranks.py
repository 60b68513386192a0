"""The processes that train one model together, under `torchrun`; one process alone is the plain case.

Batches are those of one process: every rank takes its part of each, gradients are summed, and numbers that decide
anything are summed before they do, so that all ranks decide alike.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.rendezvous import rendezvous

from nagphormer.device import machine
from nagphormer.errors import UserError

LOST = re.compile("closed by peer|reset by peer|Broken pipe|remote process exited|aborted", re.IGNORECASE)
"""What Gloo and NCCL say when another rank is gone."""
T = TypeVar("T")
PATIENCE = timedelta(days=1)
"""How long a rank waits for the others: tokens of a large graph take hours, and torchrun ends all when one dies."""


@dataclass(frozen=True)
class Ranks:
    """This process among all that train together."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def share(self, nodes: torch.Tensor) -> torch.Tensor:
        """This rank's part of some nodes: as many as the others', give or take one; perhaps none."""
        return nodes.tensor_split(self.count)[self.rank]

    def add_up(self, tensor: torch.Tensor) -> None:
        """Sum a tensor over all ranks, in place."""
        if self.count > 1:
            distributed.all_reduce(tensor)

    def wait(self) -> None:
        """Go on when all ranks have come here."""
        if self.count > 1:
            distributed.barrier()

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first rank goes ahead, the others follow and find what it left."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def agreed(self, value: T) -> T:
        """The first rank's value, on all: files and free memory may look different from another machine."""
        if self.count == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box)
        return box[0]

    def replicated(self, module: nn.Module, all_used: bool) -> nn.Module:
        """The module with its weights equal on all ranks, and the mean of their gradients on each.

        Args:
            module: what is trained.
            all_used: whether every weight has a part in the result.
        """
        if self.count == 1:
            return module
        return nn.parallel.DistributedDataParallel(module, find_unused_parameters=not all_used)


ALONE = Ranks()


@contextmanager
def ranks_of_torchrun(device: str | None) -> Iterator[Ranks]:
    """Join the other ranks if `torchrun` started this process.

    Args:
        device: what each rank computes on, as the user gives it; GPUs talk through NCCL, processors through Gloo.
    """
    if not distributed.is_torchelastic_launched():
        yield ALONE
        return
    device = machine(device).device
    store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
    # after a restart the store still holds the addresses of ranks that are gone, and who reads first finds nobody there
    store = distributed.PrefixStore(f"attempt-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    where: dict[str, Any] = {"store": store, "rank": rank, "world_size": count, "timeout": PATIENCE}
    if device == "cpu":
        distributed.init_process_group("gloo", **where)
    else:
        distributed.init_process_group("nccl", **where, device_id=torch.device(device))
    try:
        yield Ranks(rank, count)
    except RuntimeError as error:
        if LOST.search(str(error)) is None:
            raise
        raise UserError("another rank has ended, and training with it: run it again with --resume to go on") from error
    else:  # not after an error: NCCL would wait for ranks that wait for this one
        distributed.destroy_process_group()
