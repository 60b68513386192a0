import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_lowest_versions_are_those_that_are_asked_for():
    """lowest.txt is what one job of the continuous integration installs; torch is the newest there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [re.fullmatch(r"([\w-]+)>=([\d.]+)", dependency) for dependency in project["dependencies"]]
    assert all(asked)
    lowest = [f"{match[1]}=={match[2]}" for match in asked if match[1] != "torch"]
    assert (ROOT / "lowest.txt").read_text(encoding="utf-8").splitlines() == lowest
