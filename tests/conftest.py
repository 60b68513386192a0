"""Fixtures that several test files share."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets that the environment variable NAGPHORMER_DATA names."""
    folder = os.environ.get("NAGPHORMER_DATA")
    if not folder:
        pytest.skip("needs real data: set NAGPHORMER_DATA to a folder of <name>.npz files")
    return Path(folder)
