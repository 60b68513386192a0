"""`nagphormer train` in a process that can be told where to die.

Such processes are forked from a server that has imported this module, since importing takes longer than training
on a small graph.
"""

import json
import os
import signal
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

# not used here: slow to import, and otherwise imported anew in every process
import pyarrow.parquet  # noqa: F401
import torch._dynamo  # noqa: F401

from nagphormer import cli
from nagphormer.inference import predict  # noqa: F401
from nagphormer.training import checkpoint, ensemble, loop, run  # noqa: F401


def act(arguments: list[str], log: str, death: dict) -> None:
    """Run the command line, print to `log` which epochs are trained, and die as told.

    Args:
        arguments: of the command line.
        log: file for all that is printed; before dying in an update, `<log>.json` says which.
        death: `update`, number of the one to die after; `tensors_of` or `facts_of`, epoch whose checkpoint is being
            written then; `signal`, by default SIGKILL; `share`, how often checkpoints are made; `late`, seconds that
            the clock of training several members gains whenever it is read.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if "late" in death:
        ensemble.time = SimpleNamespace(
            monotonic=partial(next, (time.monotonic() + n * death["late"] for n in count()))
        )
    checkpoint.SHARE = death.get("share", checkpoint.SHARE)
    train_epoch, step = loop.Trainer._train_epoch, loop.Trainer._step
    write_json, save_file = checkpoint.write_json, checkpoint.save_file

    def die() -> None:
        os.kill(os.getpid(), death.get("signal", signal.SIGKILL))

    def talking_epoch(self, epoch):
        print(f"epoch {epoch} begins", flush=True)
        return train_epoch(self, epoch)

    def dying_step(self, batch, fetched):
        loss = step(self, batch, fetched)
        if self.update == death.get("update"):
            mark = {"update": self.update, "epoch": len(self.history.records) + 1}
            Path(f"{log}.json").write_text(json.dumps(mark))
            die()
        return loss

    def dying_save_file(tensors, path, metadata):
        save_file(tensors, path, metadata)
        if path.name.startswith(f".{death.get('tensors_of', -1):06d}"):
            os.truncate(path, path.stat().st_size // 2)
            die()

    def dying_write_json(path, content):
        write_json(path, content)
        if content["epoch"] == death.get("facts_of"):
            die()

    loop.Trainer._train_epoch, loop.Trainer._step = talking_epoch, dying_step
    checkpoint.save_file, checkpoint.write_json = dying_save_file, dying_write_json
    sys.argv = ["nagphormer", *arguments]
    cli.main()
