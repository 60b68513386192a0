PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test .venv

demo: .venv
	$(BIN)/nagphormer demo

test: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

.venv: .venv/installed

# the mark is set last, so that an interrupted installation is taken up again
.venv/installed: pyproject.toml constraints.txt
	@echo "installing into .venv, about a minute"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@
