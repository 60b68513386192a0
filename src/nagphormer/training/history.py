"""What happened in every epoch: in memory, in `metrics.jsonl`, and for TensorBoard if asked."""

import json
import os
from pathlib import Path
from typing import Any

from nagphormer.errors import MissingExtra, UserError
from nagphormer.files import new_file


class History:
    """One record per epoch, in order, none twice and none missing, also after a resume."""

    def __init__(self, path: Path | None = None, tensorboard: Path | None = None):
        self.records: list[dict[str, Any]] = []
        self._path = path
        self._board = _open_board(tensorboard) if tensorboard else None

    def keep(self, epochs: int) -> None:
        """Take up the file's first `epochs` records and drop what a stopped run wrote after its last checkpoint."""
        if self._path is None:
            return
        if epochs:
            self.records = read_history(self._path)[:epochs]
            if [record["epoch"] for record in self.records] != list(range(1, epochs + 1)):
                raise UserError(f"{self._path} does not hold epochs 1 to {epochs}: it was changed; start a new run")
        with new_file(self._path) as staging:
            staging.write_text("".join(_line(record) for record in self.records), encoding="utf-8")

    def add(self, record: dict[str, Any]) -> None:
        """Append an epoch."""
        self.records.append(record)
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(_line(record))
        if self._board is not None:
            for name, value in record.items():
                self._board.add_scalar(name, value, record["epoch"])

    def sync(self) -> None:
        """Bring the records so far to the disk, before a checkpoint that counts on them."""
        if self._path is not None:
            with open(self._path, "rb") as file:
                os.fsync(file.fileno())
        if self._board is not None:
            self._board.flush()


def read_history(path: Path) -> list[dict[str, Any]]:
    """All whole records of a `metrics.jsonl`; a last line cut short is left out."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"


def _open_board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("tensorboard", "tensorboard", "writing for TensorBoard") from error
    return SummaryWriter(str(folder))
