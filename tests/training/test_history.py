import json
import sys

import pytest

from nagphormer import UserError
from nagphormer.training.history import History, read_history


def record(epoch, **more):
    return {"epoch": epoch, "train_loss": 1 / epoch, **more}


@pytest.fixture
def path(tmp_path):
    """A file with epochs 1 to 5."""
    history = History(tmp_path / "metrics.jsonl")
    for epoch in range(1, 6):
        history.add(record(epoch))
    return tmp_path / "metrics.jsonl"


def epochs(records):
    return [found["epoch"] for found in records]


def test_records_come_back_as_they_were_added(path):
    assert read_history(path) == [record(epoch) for epoch in range(1, 6)]
    assert [json.loads(line)["epoch"] for line in path.read_text().splitlines()] == [1, 2, 3, 4, 5]


def test_a_record_is_in_the_file_as_soon_as_it_is_added(tmp_path):
    history = History(tmp_path / "metrics.jsonl")
    history.add(record(1))
    history.sync()
    assert epochs(read_history(tmp_path / "metrics.jsonl")) == [1]


def test_without_a_path_records_stay_in_memory():
    history = History()
    history.keep(0)
    history.add(record(1))
    history.sync()
    assert history.records == [record(1)]


def test_epochs_after_the_checkpoint_are_dropped(path):
    history = History(path)
    history.keep(3)
    assert epochs(history.records) == epochs(read_history(path)) == [1, 2, 3]
    history.add(record(4, again=True))
    assert read_history(path)[3] == record(4, again=True)
    assert epochs(read_history(path)) == [1, 2, 3, 4]


def test_starting_afresh_empties_the_file(path):
    history = History(path)
    history.keep(0)
    assert history.records == read_history(path) == []
    assert path.read_text() == ""


@pytest.mark.parametrize("end", ['{"epoch": 6, "tr', '{"epoch": 6, "train_loss": 0.5', "\0\0\0\0"])
def test_a_last_line_cut_short_is_left_out(path, end):
    with open(path, "a") as file:
        file.write(end)
    assert epochs(read_history(path)) == [1, 2, 3, 4, 5]
    history = History(path)
    history.keep(5)
    history.add(record(6))
    assert epochs(read_history(path)) == [1, 2, 3, 4, 5, 6]


def test_a_file_that_lacks_epochs_is_refused(path):
    lines = path.read_text().splitlines(keepends=True)
    for kept in (
        lines[:2],
        lines[1:],
        [*lines[:2], "broken\n", *lines[2:]],
        [lines[0], *lines],
        [*lines[:2], lines[3]],
    ):
        path.write_text("".join(kept))
        with pytest.raises(UserError, match="does not hold epochs 1 to 4: it was changed"):
            History(path).keep(4)
        assert path.read_text() == "".join(kept)
    path.unlink()
    with pytest.raises(UserError, match="does not hold epochs 1 to 4"):
        History(path).keep(4)


def test_no_file_is_no_history(tmp_path):
    assert read_history(tmp_path / "metrics.jsonl") == []


def test_tensorboard_gets_every_number(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = History(tmp_path / "metrics.jsonl", tmp_path / "board")
    for epoch in (1, 2):
        history.add(record(epoch))
    history.sync()
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train_loss")] == [(1, 1.0), (2, 0.5)]


def test_tensorboard_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"nagphormer\[tensorboard\]"):
        History(tensorboard=tmp_path)
