"""Fixtures that several test files share."""

import os
import sqlite3
import sys
import tempfile
from pathlib import Path

import numba
import pytest

# read when torch is loaded: idle threads sleep, for spinning ones take the cores from all others on a shared machine
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from nagphormer import cli, progress
from nagphormer.commands import terminal

_shared = tempfile.TemporaryDirectory(prefix="nagphormer-cache-")
os.environ["NAGPHORMER_CACHE"] = _shared.name  # for fixtures of whole files; nothing is kept on the tester's machine


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path_factory) -> Path:
    """A cache of the test's own."""
    folder = tmp_path_factory.mktemp("cache") / "nagphormer"
    monkeypatch.setenv("NAGPHORMER_CACHE", str(folder))
    return folder


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets that the environment variable NAGPHORMER_DATA names."""
    folder = os.environ.get("NAGPHORMER_DATA")
    if not folder:
        pytest.skip("needs real data: set NAGPHORMER_DATA to a folder of <name>.npz files")
    return Path(folder)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the command line in this process; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("_as_json", "_quiet", "_after_interrupt"):
        monkeypatch.setattr(terminal, name, getattr(terminal, name))
    monkeypatch.setattr(cli.app, "config", cli.app.config)
    threads = numba.get_num_threads()

    def run_command(*arguments):
        monkeypatch.setattr(sys, "argv", ["nagphormer", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    yield run_command
    progress.configure(quiet=True)
    progress._bars = True
    numba.set_num_threads(threads)


@pytest.fixture(scope="module")
def one_thread():
    """One processor thread: on small arrays several only wait for each other, the more so on a busy machine."""
    import torch

    threads = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(threads[0])
    numba.set_num_threads(threads[1])


@pytest.fixture
def hasty(monkeypatch):
    """Databases that do not wait for the disk, as tests need not outlive a power failure."""

    def connect(*given, **named):
        connection = opened(*given, **named)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    opened = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
