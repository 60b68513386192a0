"""The README's blocks are run, in order, in one folder with a small edge list and node table."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
RUN = [entry for entry in BLOCKS if entry[0] != "text"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    names = [f"user_{number:02d}" for number in range(60)]
    edges = [f"{names[i]},{names[(i + step) % 60]}" for i in range(60) for step in (2, 4)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    splits = ("train", "train", "train", "val", "test")
    nodes = [f"{name},{('even', 'odd')[i % 2]},{splits[i % 5]},{i % 2},{i}" for i, name in enumerate(names)]
    (folder / "nodes.csv").write_text("id,label,split,kind,age\n" + "\n".join(nodes) + "\n")
    return folder


def run(command, folder):
    """Run a command as a user would, without the data sets of the machine that tests run on."""
    environment = {name: value for name, value in os.environ.items() if name != "NAGPHORMER_DATA"}
    subprocess.run(command, cwd=folder, env=environment, check=True)


def test_the_readme_has_blocks_of_every_kind():
    assert {"bash", "python", "text"} <= {language for language, _ in BLOCKS}


def test_nothing_is_left_to_be_filled_in():
    assert not re.search(r"\b(RESULTS|DEMO_OUTPUT|TODO|TBD)\b|@@", TEXT)


@pytest.mark.parametrize(("language", "block"), RUN)
def test_a_block_of_the_readme_runs(language, block, folder):
    if language == "python":
        run([sys.executable, "-c", block], folder)
        return
    assert language == "bash"
    for line in block.splitlines():
        for command in made_by_make(line) if line.startswith("make ") else [line]:
            program, *arguments = shlex.split(command)
            assert Path(program).name == "nagphormer"
            run([sys.executable, "-m", "nagphormer", *arguments], folder)


def made_by_make(line):
    """What a line such as `make demo` runs, once everything is installed."""
    target = line.split()[1]
    rule = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return [command.strip() for command in rule[1].splitlines()]


def test_the_tree_of_the_code_names_every_module():
    tree = TEXT[TEXT.index("src/nagphormer/\n") :]
    modules = [path.name for path in (ROOT / "src" / "nagphormer").rglob("*.py") if not path.name.startswith("__")]
    assert [name for name in modules if name not in tree] == []
