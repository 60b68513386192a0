"""Checkpoints to resume from: safetensors and JSON, written whole, the last two kept."""

import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from nagphormer.errors import UserError
from nagphormer.files import check_size, checksum, new_file, read_json, write_json

FORMAT = 1
KEPT = 2
SHARE = 0.05
"""Share of the time that writing checkpoints may take."""


class Checkpoints:
    """The folder `state/` of a run.

    Each checkpoint is `<epoch>.safetensors`, which holds everything, with `<epoch>.json`, which is written last and
    holds its checksum: one without the other, or damaged, is no checkpoint, and the one before it is used.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._next_time = 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the last one that writing stays a small share of it."""
        return time.monotonic() >= self._next_time

    def save(self, epoch: int, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        """Write the state after `epoch`, then remove all but the last two."""
        start = time.monotonic()
        path = self.folder / f"{epoch:06d}.safetensors"
        with new_file(path) as staging:
            whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            save_file(whole, staging, {"facts": json.dumps({"epoch": epoch, **facts})})
        entry = {"bytes": path.stat().st_size, "sha256": checksum(path)}
        with new_file(path.with_suffix(".json")) as staging:
            write_json(staging, {"kind": "state", "format": FORMAT, "epoch": epoch, "file": entry})
        newer = [path for path in self._all() if int(path.stem) > epoch]  # damaged, or training would not be here
        for old in (*newer, *self._all()[: -KEPT - len(newer)]):
            old.unlink()
            old.with_suffix(".safetensors").unlink(missing_ok=True)
        self._next_time = time.monotonic() + (time.monotonic() - start) / SHARE

    def load(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole, or None where there is none."""
        for path in reversed(self._all()):
            tensors_path = path.with_suffix(".safetensors")
            try:
                entry = read_json(path, "state", FORMAT, ("file",))["file"]
                check_size(tensors_path, entry["bytes"])
                if checksum(tensors_path) != entry["sha256"]:
                    raise UserError(f"{tensors_path} is corrupt (checksum differs)")
                with safe_open(tensors_path, "pt") as file:
                    facts = json.loads(file.metadata()["facts"])
                return load_file(tensors_path), facts
            except (UserError, SafetensorError, KeyError, TypeError) as error:
                warnings.warn(
                    f"the checkpoint {path.stem} cannot be used: {error}; trying the one before", stacklevel=2
                )
        return None

    def _all(self) -> list[Path]:
        """Facts of all checkpoints, oldest first."""
        return sorted(self.folder.glob("[0-9]*.json"), key=lambda path: int(path.stem))
