"""Who may import whom: a room imports only from rooms to its left, and no two modules need each other."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import nagphormer

SOURCE = Path(nagphormer.__file__).parent
ROOMS = (
    ("__init__", "errors", "files", "cache", "progress", "settings", "device", "metrics"),
    ("data",),
    ("tokens",),
    ("model",),
    ("training",),
    ("inference",),
    ("estimator", "selection", "pyg", "commands"),
    ("cli",),
    ("__main__",),
)
"""From left to right; what shares a place may import each other."""
KNOWN_CYCLES = {("data/graph", "data/folder")}  # Graph.save
"""Imports inside a function that lead back to a module that needs this one."""


def imports(path):
    """The package's modules that a file imports, anywhere in it but for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for line in block.body
        for node in ast.walk(line)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import: write the whole name"
            names = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            if module.partition(".")[0] == "nagphormer":
                yield module_of(f"{module}.{name}") or module_of(module)


def module_of(dotted):
    """A module's path within the package, without its ending; None for names that are no module."""
    path = SOURCE.joinpath(*dotted.split(".")[1:])
    if path.with_suffix(".py").is_file():
        return path.relative_to(SOURCE).as_posix()
    return (path / "__init__").relative_to(SOURCE).as_posix() if (path / "__init__.py").is_file() else None


MODULES = {path.relative_to(SOURCE).with_suffix("").as_posix(): set(imports(path)) for path in SOURCE.rglob("*.py")}


def place(module):
    """Where a module's room stands; every module has one."""
    (found,) = [number for number, rooms in enumerate(ROOMS) if module.partition("/")[0] in rooms]
    return found


def test_a_room_imports_only_from_its_left():
    wrong = [(module, other) for module, others in MODULES.items() for other in others if place(other) > place(module)]
    assert wrong == []


def test_no_command_imports_another():
    shared = {f"commands/{name}" for name in ("terminal", "flags", "train_flags", "use", "__init__")}
    wrong = [
        (module, other)
        for module, others in MODULES.items()
        for other in others - shared
        if module.startswith("commands/") and other.startswith("commands/")
    ]
    assert wrong == []


def test_no_module_needs_one_that_needs_it():
    needs = {
        module: {other for other in others if (module, other) not in KNOWN_CYCLES} for module, others in MODULES.items()
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        raise AssertionError(f"a cycle: {' <- '.join(error.args[1])}") from None


def test_known_cycles_exist():
    assert {(one, other) for one, other in KNOWN_CYCLES if other not in MODULES[one]} == set()


def test_no_module_takes_a_public_name_from_the_package_itself():
    taken = [
        (path.name, alias.name)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "nagphormer"
        for alias in node.names
        if alias.name != "__version__" and module_of(f"nagphormer.{alias.name}") is None
    ]
    assert taken == [], "name the module that has it: a public name may be a later room's"
