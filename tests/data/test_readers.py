"""The table of formats against what reads them."""

from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from nagphormer.commands.import_ import ImportFlags
from nagphormer.data.readers import READERS, reader_of


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.function)
def test_a_row_names_a_function_and_how_to_call_it(reader):
    module, name = reader.function.split(":")
    first, *others = signature(getattr(import_module(f"nagphormer.data.{module}"), name)).parameters
    assert first in ("path", "folder")
    assert reader.pickles == ("allow_pickle" in others)
    assert reader.suffix or (reader.flag in ImportFlags.__dataclass_fields__ and reader.help)


def test_a_file_is_known_by_its_ending():
    assert reader_of(Path("a/b.npz")).function == "npz:read_npz"
    assert reader_of(Path("a/b.txt")) is reader_of(Path("folder")) is None
