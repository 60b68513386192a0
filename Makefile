PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test

demo: .venv
	$(BIN)/nagphormer demo

test: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

.venv: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch .venv
