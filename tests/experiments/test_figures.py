import pytest

from experiments import figures


def test_points_are_means_with_deviations():
    means, deviations = figures._summary([("a", [1.0, 2.0, 6.0]), ("b", [4.0])])
    assert means == [3.0, 4.0]
    assert deviations == pytest.approx([7.0**0.5, 0.0])


def test_sizes_are_on_the_horizontal_axis(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(figures, "_write", lambda figure, path: drawn.append(figure))
    figures.loglog({"train": [("10", [2.0]), ("100", [4.0, 8.0])]}, tmp_path / "figure.svg", "nodes", "seconds")
    (panel,) = drawn[0].axes
    assert panel.lines[0].get_xydata().tolist() == [[10.0, 2.0], [100.0, 6.0]]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("nodes", "seconds")


def test_bars_are_not_cut_off(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(figures, "_write", lambda figure, path: drawn.append(figure))
    figures.bars({"Photo": [("ATT.", [95.0, 96.0]), ("SUM.", [90.0, 91.0])]}, tmp_path / "figure.svg")
    low, high = drawn[0].axes[0].get_ylim()
    assert low < 90
    assert high > 96
