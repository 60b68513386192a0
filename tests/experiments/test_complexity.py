import pytest

from experiments import records
from experiments.complexity import STUDIES, _growth, _larger, _slope, _smaller, complexity_section
from experiments.harness import DONE


@pytest.fixture(autouse=True)
def results(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "RESULTS", tmp_path / "results")
    return tmp_path


def record(study, exponent, megabytes_each):
    for value in study.values:
        seconds = 1e-3 * value**exponent
        facts = {
            "outcome": DONE,
            "stages": {"prepare": seconds, "train": 3 * seconds, "infer": 0.1 * seconds},
            "peak_gb": 0.5 + megabytes_each * value / 1000,
            "device": "abacus",
            "versions": {"torch": "2"},
            "date": "2026-01-02",
        }
        study.cell(value).write(facts)


def change(cell, **facts):
    cell.write(cell.read() | facts)


def test_a_power_law_gives_back_its_exponent():
    found = {size: {"stages": {"train": 5 * size**1.3}} for size in (10, 100, 1000, 10_000)}
    assert _slope(found, "train") == pytest.approx(1.3)


def test_slopes_and_memory_are_told_and_drawn(results):
    batch = STUDIES[2]
    record(batch, 1.0, megabytes_each=0.05)
    text = complexity_section(results)
    assert "preparation 1.0" in text
    assert "abacus; torch 2, PyG None; 2026-01-02. Exponent of B" in text
    assert "by a line: 50.0 kB a node of a batch over the smaller half, 50.0 kB over the larger." in text
    assert (results / "results" / "complexity-B.svg").is_file()
    record(batch, -0.01, megabytes_each=0.05)
    assert "5 epochs on 60 % of the nodes 0.0," in complexity_section()


def test_memory_is_told_by_halves_since_it_may_level_off():
    peaks = {500: 0.5, 1000: 1.0, 2000: 2.0, 4000: 4.0, 8000: 4.0, 16_000: 4.0}
    found = {size: {"peak_gb": peak} for size, peak in peaks.items()}
    assert _growth(found, _smaller(found)) == "1.0 MB"
    assert _growth(found, _larger(found)) == "0.0 kB"


def test_studies_change_one_quantity_each():
    for study in STUDIES:
        datasets = {study.cell(value).dataset for value in study.values}
        hops = {study.cell(value).settings["hops"] for value in study.values}
        batches = {study.cell(value).settings["batch_size"] for value in study.values}
        sizes = {"N": len(datasets), "K": len(hops), "B": len(batches)}
        assert sizes == {symbol: len(study.values) if symbol == study.symbol else 1 for symbol in "NKB"}


def test_the_exponent_is_that_of_the_larger_half():
    times = {10: 5.0, 100: 5.0, 1000: 5.0, 10_000: 50.0}  # start-up first, then linear
    found = {size: {"stages": {"train": seconds}} for size, seconds in times.items()}
    assert _slope(found, "train") == pytest.approx(1.0)


def test_each_stage_has_its_own_exponent_and_only_what_ended_counts(results):
    study = STUDIES[0]
    record(study, 1.0, megabytes_each=0.0)
    for value in study.values:
        seconds = 1e-3 * value
        change(study.cell(value), stages={"prepare": seconds**2, "train": seconds, "infer": 0.5})
    change(study.cell(study.values[0]), outcome="failed", stages={})
    text = complexity_section()
    assert "preparation 2.0, 5 epochs on 60 % of the nodes 1.0, inference on all nodes 0.0." in text
    assert "| 10,000 |" not in text


def test_every_stage_is_drawn(results, monkeypatch):
    drawn = {}
    monkeypatch.setattr("experiments.complexity.loglog", lambda data, *rest: drawn.update(data))
    record(STUDIES[0], 1.0, megabytes_each=0.05)
    complexity_section(results)
    first = [points[0] for points in drawn.values()]
    assert first == [("10000", [10.0]), ("10000", [30.0]), ("10000", [1.0])]
