import sys
from types import SimpleNamespace

import pytest

from nagphormer import progress
from nagphormer.progress import shown, stage


@pytest.mark.parametrize(
    ("shell", "widgets", "drawn"),
    [
        ("ZMQInteractiveShell", True, True),
        ("ZMQInteractiveShell", False, False),
        ("TerminalInteractiveShell", True, False),
    ],
)
def test_bars_move_in_a_notebook_that_has_what_rich_needs(shell, widgets, drawn, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=type(shell, (), {})))
    monkeypatch.setattr(progress, "find_spec", lambda name: (name == "ipywidgets" and widgets) or None)
    assert progress._can_draw() == drawn


def test_lines_end_with_the_work_they_were_asked_for(capsys):
    with pytest.raises(ZeroDivisionError), shown(True), stage("dividing"):
        raise ZeroDivisionError
    with shown(True), stage("adding"):
        pass
    with stage("in silence"):
        pass
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["  adding"]
