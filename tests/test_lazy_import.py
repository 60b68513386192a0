import subprocess
import sys

import pytest

import nagphormer

HEAVY = "torch numba scipy llvmlite pyarrow duckdb pandas"


def heavy_modules_after(code):
    """Which of the heavy packages a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys\nprint('loaded:', *[name for name in {HEAVY!r}.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


def test_importing_the_package_loads_nothing_heavy():
    assert heavy_modules_after("import nagphormer; nagphormer.__version__; dir(nagphormer)") == []


def test_help_loads_nothing_heavy():
    code = """
import sys
from nagphormer.cli import main
for command in ([], ["prepare"], ["info"], ["import"], ["demo"], ["train"], ["evaluate"], ["predict"]):
    sys.argv = ["nagphormer", *command, "--help"]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, stop.code
"""
    assert heavy_modules_after(code) == []


def test_looking_for_heavy_modules_can_find_them():
    assert "scipy" in heavy_modules_after("from nagphormer import Graph")


@pytest.mark.parametrize("name", nagphormer.__all__)
def test_every_public_name_resolves(name):
    assert getattr(nagphormer, name).__module__.startswith("nagphormer.")
    assert name in dir(nagphormer)


def test_public_names_are_those_of_the_contract():
    contract = """Graph ModelConfig NAGphormer NodeClassifier TokenStore UserError from_dgl from_networkx from_pyg
    from_scipy hop_tokens laplacian_encoding load_graph per_class_split random_split read_ogb read_tables
    synthetic_graph"""
    assert set(contract.split()) <= set(nagphormer.__all__)


def test_unknown_names_are_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        nagphormer.nonsense  # noqa: B018
