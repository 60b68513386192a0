"""The formats that hold a whole graph in one file or folder: a row each; tables are read by `tables.py`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nagphormer.data.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One format."""

    function: str
    """`module:name` within `nagphormer.data`, loaded when it is used."""
    suffix: str | None = None
    """Ending of such a file, by which `load_graph` knows it."""
    flag: str | None = None
    """What `nagphormer import` calls it, if it does."""
    help: str = ""
    """Of that flag."""
    pickles: bool = False
    """Whether it may read pickles, if it is allowed to."""

    def read(self, path: Path, allow_pickle: bool = False) -> Graph:
        """The graph in such a file or folder."""
        module, name = self.function.split(":")
        read = getattr(import_module(f"nagphormer.data.{module}"), name)
        return read(path, allow_pickle=allow_pickle) if self.pickles else read(path)


READERS = (
    Reader(function="npz:read_npz", suffix=".npz"),
    Reader(function="ogb:read_ogb", flag="ogb", help="Folder of an OGB node data set, instead of tables."),
    Reader(
        function="grand_plus:read_grand_plus",
        flag="grand_plus",
        help="Folder with GRAND+'s files (aminer, reddit, amazon2m), instead of tables; they are pickles.",
        pickles=True,
    ),
)


def reader_of(path: Path) -> Reader | None:
    """The reader that knows a file by its ending, if there is one."""
    return next((reader for reader in READERS if reader.suffix and reader.suffix == path.suffix), None)
