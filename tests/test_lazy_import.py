import ast
import inspect
import resource
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


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy():
    assert heavy_modules_after("import nagphormer; nagphormer.__version__; dir(nagphormer)") == []


@pytest.mark.slow
def test_help_loads_nothing_heavy():
    code = """
import sys
from nagphormer.cli import main
from nagphormer.cli import COMMANDS
for command in ("", *COMMANDS):
    sys.argv = ["nagphormer", *command.split(), "--help"]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, stop.code
"""
    assert heavy_modules_after(code) == []


@pytest.mark.slow
def test_the_list_of_commands_loads_none_of_them():
    code = """
import sys
from nagphormer.cli import main
sys.argv = ["nagphormer", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code
loaded = {name.rpartition(".")[2] for name in sys.modules if name.startswith("nagphormer.commands.")}
assert loaded == {"terminal"}, loaded
"""
    assert heavy_modules_after(code) == []


@pytest.mark.slow
@pytest.mark.parametrize(("code", "limit"), [("import nagphormer", 0.1), ("import nagphormer.cli as c; c.main()", 0.3)])
def test_starting_takes_a_moment(code, limit):
    """Processor time beyond that of Python itself, the least of five."""

    def seconds(code):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds(code) for _ in range(5)) - min(seconds("") for _ in range(5)) < limit


@pytest.mark.slow
def test_looking_for_heavy_modules_can_find_them():
    assert "scipy" in heavy_modules_after("from nagphormer import Graph")


@pytest.mark.parametrize("name", nagphormer.__all__)
def test_every_public_name_resolves(name):
    assert getattr(nagphormer, name).__module__.startswith("nagphormer.")
    assert name in dir(nagphormer)


def test_public_names_are_those_of_the_contract():
    contract = """Graph ModelConfig NAGphormer NodeClassifier TokenStore UserError from_dgl from_networkx from_pyg
    from_scipy hop_tokens laplacian_encoding load_graph per_class_split random_split read_ogb read_tables
    synthetic_graph cross_validate search accuracy average_precision macro_f1 micro_f1 roc_auc log_loss ece"""
    assert set(contract.split()) <= set(nagphormer.__all__)


def test_type_checkers_see_the_names_that_are_loaded_on_first_use():
    (block,) = [
        node
        for node in ast.parse(inspect.getsource(nagphormer)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {}
    for line in block.body:
        ((alias,),) = [line.names]
        assert alias.name == alias.asname  # `X as X` says that a name is public
        seen[alias.name] = line.module.removeprefix("nagphormer.")
    assert seen == nagphormer._HOME


def test_unknown_names_are_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        nagphormer.nonsense  # noqa: B018
