"""README and docs/: blocks are run, page by page in order, in a folder with a small edge list and node table."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_rooms import KNOWN_CYCLES, MODULES

import nagphormer
from nagphormer.settings import resolve_members

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
OWN = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (README, *sorted((ROOT / "docs").glob("*.md")))}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
BLOCKS = [
    (name, language, block)
    for name, text in TEXTS.items()
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
]
RUN = [entry for entry in BLOCKS if entry[1] != "text"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each page, made when its first block is run."""
    made = {}

    def folder_of(page):
        if page not in made:
            made[page] = tmp_path_factory.mktemp(Path(page).stem)
            write_tables(made[page])
        return made[page]

    return SimpleNamespace(of=folder_of)


def write_tables(folder):
    names = [f"user_{number:02d}" for number in range(60)]
    edges = [f"{names[i]},{names[(i + step) % 60]}" for i in range(60) for step in (2, 4)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    splits = ("train", "train", "train", "val", "test")
    nodes = [f"{name},{('even', 'odd')[i % 2]},{splits[i % 5]},{i % 2},{i}" for i, name in enumerate(names)]
    (folder / "nodes.csv").write_text("id,label,split,kind,age\n" + "\n".join(nodes) + "\n")


def run(command, folder):
    """Run a command as a user would, without the data sets of the machine that tests run on."""
    environment = {name: value for name, value in os.environ.items() if name != "NAGPHORMER_DATA"}
    subprocess.run(command, cwd=folder, env=environment, check=True)


def test_the_readme_has_blocks_of_every_kind():
    assert {"bash", "python", "text"} <= {language for page, language, _ in BLOCKS if page == "README.md"}


def test_the_readme_is_short():
    assert len(TEXTS["README.md"].splitlines()) <= 120


def test_the_readme_installs_with_pip_before_it_speaks_of_make():
    text = TEXTS["README.md"]
    assert text.index("pip install") < text.index("make ")


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_left_to_be_filled_in(page):
    assert not re.search(r"\b(RESULTS|DEMO_OUTPUT|TODO|TBD)\b|@@", TEXTS[page])


@pytest.mark.slow
@pytest.mark.parametrize(("page", "language", "block"), RUN)
def test_a_block_of_a_page_runs(page, language, block, folders):
    folder = folders.of(page)
    if language == "python":
        run([sys.executable, "-c", block], folder)
        return
    if language == "yaml":  # a recipe
        (folder / "recipe.yaml").write_text(block)
        assert resolve_members(folder / "recipe.yaml", None, {})
        return
    assert language == "bash", "a block is bash, python, yaml or text"
    for line in block.splitlines():
        if line.startswith("pip install "):
            continue  # the package that is tested is installed already
        for command in made_by_make(line.split()[1]) if line.startswith("make ") else [line]:
            program, *arguments = shlex.split(command)
            assert Path(program).name == "nagphormer"
            run([sys.executable, "-m", "nagphormer", *arguments], folder)


def made_by_make(target):
    """What `make <target>` runs, once everything is installed."""
    rule = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule, f"the Makefile has no {target}"
    return [command.strip() for command in rule[1].splitlines()]


@pytest.mark.parametrize("page", [*PAGES, *OWN])
def test_what_a_page_makes_is_in_the_makefile(page):
    for target in re.findall(r"`make ([\w-]+)`", (ROOT / page).read_text(encoding="utf-8")):
        made_by_make(target)


@pytest.mark.parametrize("page", [*PAGES, *OWN])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(anchor_of, headings), target


def anchor_of(heading):
    """What a heading is called in a link."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_linked_from_the_readme():
    linked = re.findall(r"\]\((docs/[\w-]+\.md)", TEXTS["README.md"])
    assert {name for name in PAGES if name != "README.md"} == set(linked)


def test_the_page_of_data_names_every_reader():
    readers = [name for name in nagphormer.__all__ if name.startswith(("from_", "read_"))]
    assert len(readers) > 4
    assert [name for name in readers if f"`{name}" not in TEXTS["docs/data.md"]] == []


TREE = re.findall(r"^\| `([\w/]+)\.py` \|", TEXTS["docs/architecture.md"].partition("## Types between rooms")[0], re.M)
"""The package's files in the order of docs/architecture.md."""


def test_the_tree_of_the_code_names_every_file_once():
    modules = [module for module in MODULES if not module.endswith("/__init__")]
    assert sorted(TREE) == sorted(modules)


def test_a_file_imports_only_files_above_it_in_the_tree():
    below = [
        (module, other)
        for module, others in MODULES.items()
        for other in others
        if (module, other) not in KNOWN_CYCLES and {module, other} <= set(TREE)
        if TREE.index(other) > TREE.index(module)
    ]
    assert below == []


def test_the_tree_names_what_lies_outside_the_package():
    outside = TEXTS["docs/architecture.md"].partition("## Outside the package")[2]
    files = [path for place in ("experiments", "benchmarks", "scripts") for path in (ROOT / place).glob("*.py")]
    assert [path.name for path in files if path.name not in outside and path.name != "__init__.py"] == []
