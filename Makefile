# Two commands are all a fresh machine with Python 3.11+ and make needs:
#   make demo   install into .venv and compare FLANP with its rivals
#   make test   install into .venv and run the tests
# make test-flower adds Flower, PyTorch, Flax and Equinox to .venv and runs their tests, with real processes;
# the one that measures what a round costs runs alone, the longest of the others first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-flower lint bench clean

demo: $(INSTALLED)
	$(BIN)/flanp compare --overwrite --out runs/demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --ignore tests/deployment

test-flower: $(VENV)/.flower
	$(BIN)/python -m pytest tests/deployment/test_overhead.py
	$(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder --durations 8 \
		--ignore tests/deployment/test_overhead.py \
		$(addprefix tests/deployment/test_,stragglers.py docs.py deployment.py resume.py) \
		tests/deployment tests/flower tests/pytorch tests/models src/flanp/flower src/flanp/pytorch

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python benchmarks/round.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "flanp needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/.flower: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,flower,torch,flax,equinox]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist
