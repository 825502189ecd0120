# Every target does the set-up it needs. The machine must only have make and python3 (3.11 or newer, with venv).

PYTHON ?= python3
MODEL ?= smollm2-135m
ARGS ?=
PY := .venv/bin/python
# The stamp's name holds pyproject.toml and this folder: the set-up is repeated when either changes, and only then.
STAMP := .venv/ready-$(shell { cat pyproject.toml; pwd; } | cksum | cut -d ' ' -f 1)
# Two test processes on two cores, one arithmetic thread each.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n 2
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help setup model demo lab test test-fast test-notebooks lint format notebooks clean distclean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F '|' '{ printf "%-24s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Make .venv and install everything into it

model: $(STAMP) ## Fetch the small language model (98 MB, once)
	@$(PY) -m minicache models pull $(MODEL)

demo: model ## Three people chat, a fourth pastes a long document: watch the freeze, and the cure (ARGS="--help")
	@$(PY) -m minicache demo --model $(MODEL) $(ARGS)

# Lab shows the stored pictures of a notebook only when it is trusted.
lab: model ## Open the lessons in JupyterLab
	@$(PY) -m jupyter trust solutions/*.ipynb > /dev/null
	$(PY) -m jupyterlab $(AS_ROOT) --notebook-dir=. $(ARGS)

test: model ## Run every test, the notebooks too
	$(PYTEST) tests $(ARGS)
	@$(MAKE) --no-print-directory test-notebooks

test-fast: $(STAMP) ## Run the tests that need neither the model nor much time
	$(PYTEST) tests -m "not slow and not model" $(ARGS)

# The notebooks write the learner's library: into a folder that is thrown away.
test-notebooks: model ## Run all cells of solutions/ and lessons/
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && export MINICACHE_MYCACHE="$$scratch" && set -x && \
	$(PYTEST) --dist loadfile --nbval-lax --nbval-current-env --nbval-cell-timeout=120 solutions lessons

lint: $(STAMP) ## Check style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --pythonpath $(PY)

format: $(STAMP) ## Rewrite the files in the project's style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

notebooks: model ## Make solutions/*.ipynb and lessons/*.ipynb from solutions/*.py
	$(PY) -m minicache.lab.notebooks build $(ARGS)

clean: ## Remove what runs and tests left behind
	rm -rf out build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	rm -rf .venv

$(STAMP):
	@command -v $(PYTHON) > /dev/null || { echo "There is no $(PYTHON) here: install Python 3.11 or newer, or name one with 'make PYTHON=/path/to/python3'." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) --version 2>&1) is too old: minicache needs 3.11 or newer; name another with 'make PYTHON=python3.12'." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { v=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); echo "$(PYTHON) cannot make virtual environments: install the package $$v (apt-get install $$v) or python3-venv, then run make again." >&2; exit 1; }
	@$(PY) -m pip --version > /dev/null 2>&1 || { echo "Setting up .venv, once; PyTorch makes it a download of some minutes."; $(PYTHON) -m venv --clear .venv; }
	$(PY) -m pip install --disable-pip-version-check -e ".[dev]"
	@rm -f .venv/ready-*
	@touch $@
