import sys
from types import ModuleType, SimpleNamespace

import pytest

from nagphormer import progress
from nagphormer.progress import epochs_shown, shown, stage


class Display(list):
    """What a notebook shows: a list of outputs, each with its last content."""

    def __call__(self, content, raw, display_id):
        assert (raw, display_id) == (True, True)
        self.append(content["text/plain"])
        return SimpleNamespace(update=lambda content, raw: self.__setitem__(-1, content["text/plain"]))


@pytest.fixture
def notebook(monkeypatch):
    """The outputs of a notebook's cell."""
    shell, module, outputs = type("ZMQInteractiveShell", (), {}), ModuleType("IPython.display"), Display()
    module.display = outputs
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=shell, display=module))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 0)
    return outputs


def test_a_notebook_shows_a_line_for_each_work_that_is_written_over(notebook, capsys):
    with stage("hops", total=3) as advance:
        advance(1)
        advance(2)
    with epochs_shown(9, 1) as show:
        show(1, "loss 2")
        show(2, "loss 1")
    assert notebook == ["hops: 3 of 3", "epoch 2 of 9: loss 1"]
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_nothing_of_short_work_or_where_silence_is_wanted(notebook, monkeypatch):
    with shown(False), stage("hops", total=1) as advance:
        advance(1)
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 100)
    with epochs_shown(9, 1) as show:
        show(1, "loss 2")
    assert notebook == []


def test_lines_end_with_the_work_they_were_asked_for(capsys):
    with pytest.raises(ZeroDivisionError), shown(True), stage("dividing"):
        raise ZeroDivisionError
    with shown(True), stage("adding"):
        pass
    with stage("in silence"):
        pass
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["  adding"]


def test_lines_can_be_left_out_for_a_while(capsys):
    with progress.shown(True):
        with progress.without_lines():
            progress.note("one of many")
        progress.note("after them")
    assert capsys.readouterr().err == "  after them\n"
