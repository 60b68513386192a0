PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all check docs .venv

demo: .venv
	$(BIN)/nagphormer demo

# what one runs often; test-all runs the slow tests, too
test: check
	$(BIN)/python -m pytest -n auto

test-all: check
	$(BIN)/python -m pytest -m ''

check: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/python scripts/api_pages.py site
	PYTHONWARNINGS=ignore:IProgress $(BIN)/python -m nbconvert --to html --execute --output-dir site docs/tour.ipynb

.venv: .venv/installed

# the mark is set last, so that an interrupted installation is taken up again
.venv/installed: pyproject.toml constraints.txt
	@echo "installing into .venv, about a minute"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@
