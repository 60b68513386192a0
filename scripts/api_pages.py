"""Write pages of every public name and its docstring, by pdoc.

python scripts/api_pages.py site
"""

import sys
import warnings
from pathlib import Path

import pdoc

import nagphormer


def write(folder: Path) -> Path:
    """Write the pages into a folder; gives the one that has all public names."""
    for name in nagphormer.__all__:
        setattr(nagphormer, name, getattr(nagphormer, name))  # pdoc does not ask for what is loaded on first use
    pdoc.render.configure(docformat="google")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as a name that pdoc cannot find
        pdoc.pdoc("nagphormer", output_directory=folder)
    return folder / "nagphormer.html"


if __name__ == "__main__":
    print(f"wrote {write(Path(sys.argv[1]))}")
