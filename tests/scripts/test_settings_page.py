from dataclasses import fields

from nagphormer import TrainConfig
from nagphormer.settings import TokenSettings
from scripts.settings_page import PAGE, SECTIONS, page


def test_the_page_is_what_the_script_writes():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/settings_page.py"


def test_every_setting_has_one_row():
    named = " ".join(SECTIONS.values()).split()
    assert len(set(named)) == len(named)
    rows = [line.split("|")[1].strip(" `") for line in page().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(each.name for kind in (TrainConfig, TokenSettings) for each in fields(kind))
