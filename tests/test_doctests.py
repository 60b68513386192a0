import doctest
import importlib
import pkgutil

import pytest

import nagphormer

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(nagphormer.__path__, "nagphormer.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_are_found():
    finder = doctest.DocTestFinder()
    examples = [e for name in MODULES for t in finder.find(importlib.import_module(name)) for e in t.examples]
    assert len(examples) > 10
