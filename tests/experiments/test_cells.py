from dataclasses import asdict, replace

import pytest

from experiments import cells
from nagphormer.settings import resolve


def test_circumstances_name_all_machines_and_the_span_of_dates():
    facts = [
        {"device": device, "versions": {"torch": "2", "torch-geometric": "3"}, "date": date}
        for device, date in (("lathe", "2026-01-03"), ("abacus", "2026-01-01"), ("lathe", "2026-01-02"))
    ]
    assert cells.circumstances(facts) == "abacus or lathe; torch 2, PyG 3; 2026-01-01 to 2026-01-03"


def test_peak_memory_is_that_of_the_work_alone():
    def work():
        block = bytearray(300_000_000)
        return {"size": len(block)}

    idle = cells.measured(dict, "cpu")["peak_gb"]
    busy = cells.measured(work, "cpu")["peak_gb"]
    assert busy - idle == pytest.approx(0.3, abs=0.05)
    assert cells.measured(dict, "cpu")["peak_gb"] < idle + 0.05


def test_a_cell_of_other_settings_is_not_read(monkeypatch, tmp_path):
    monkeypatch.setattr(cells, "RESULTS", tmp_path)
    config = resolve("paper", "cora", {"seed": 0})
    cells.write_cell("table", "cora-0", {"config": asdict(config)})
    assert cells.read_cell("table", "cora-0", config)
    assert cells.read_cell("table", "cora-0", replace(config, hops=99)) is None
