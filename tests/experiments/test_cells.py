import pytest

from experiments import cells


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


def test_what_the_work_tells_of_itself_stands():
    assert cells.measured(lambda: {"seconds": 12.0, "peak_gb": 3.0}, "cpu") == {"seconds": 12.0, "peak_gb": 3.0}
