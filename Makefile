# Everything starts from a fresh clone: each target makes what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PYTEST_ARGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.cli ## See it work: load a sample handbook, search it, validate a good and a corrupted chunk
	@$(BIN)/chunkproof demo

.PHONY: test
test: $(VENV)/.dev ## Run the tests, a real Qdrant server included
	$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: check
check: lint ## Everything that must hold before a change is merged
	$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS)
	$(BIN)/python -m coverage report --include='shared/*' --fail-under=90 >/dev/null

.PHONY: lint
lint: $(VENV)/.dev ## Style, types, module boundaries
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(VENV)/.dev ## Write the generated pages of docs/ anew
	$(BIN)/python tests/tools/pages.py

.PHONY: lock
lock: $(VENV)/.dev ## Pin the dependencies anew from pyproject.toml
	$(BIN)/python tests/tools/pins.py

.PHONY: clean
clean: ## Remove everything that was made here
	rm -rf $(VENV) .venv-* dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Chunkproof needs Python 3.11 or later; name one: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Making $(VENV) (once)" >&2
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.cli: $(VENV)/pyvenv.cfg cli/requirements.txt pyproject.toml
	@echo "Installing what the command needs (once, about a minute)" >&2
	@$(PIP) install --require-hashes -r cli/requirements.txt
	@$(PIP) install --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/pyvenv.cfg tests/requirements.txt pyproject.toml
	@echo "Installing what the tests need (once, about a minute)" >&2
	@$(PIP) install --require-hashes -r tests/requirements.txt
	@$(PIP) install --no-deps -e .
	@touch $@ $(VENV)/.cli
