"""Run the command line with `python -m nagphormer`."""

from nagphormer.cli import main

main()
