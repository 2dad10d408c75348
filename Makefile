# `make demo` needs only make and Python 3.11. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO ?= demo
POLICY ?= policy
PYTEST_ARGS ?=
# Twice as many processes as two cores have, as many tests wait.
PYTEST_WORKERS ?= -n 4 --dist loadscope --no-loadscope-reorder
FUZZ_ARGS ?= --seconds 20
# Tests make and delete a hundred thousand files: in memory, where a machine has enough for them.
TEST_FILES := $(or $(TMPDIR),$(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 8000000 { print "/dev/shm" }'),/tmp)
# The development-mode compiler for tests, with its sources and objects: built once for all checkouts.
CACHE_HOME := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
TEST_TOOLCHAIN ?= $(CACHE_HOME)/mlgo-corpus-tests

# Of the ten thousand modules that come, a tenth is used: Python compiles each when it is.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -q --no-compile

# Use only packages of the virtual environment, on every machine.
unexport PYTHONPATH
unexport PYTHONHOME
# Many processes load the same: what is compiled is kept.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check lint test fuzz docs bench wheel policy llvm devmode clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

demo: $(VENV)/.installed ## build real code with a compiler from pip, extract a corpus, trace it, search it, train a policy
	$(BIN)/mlgo-corpus demo --output $(DEMO)

lint: $(VENV)/.installed-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

check: lint ## run ruff, mypy, and the tests that need no compiler and are done in a minute
	$(BIN)/python -m pytest -n 2 --dist loadscope -q -m "not (llvm or ray or chromium or trainers or whole)" $(PYTEST_ARGS)

test: ## run ruff, mypy and pytest
	@$(MAKE) --jobs=2 --no-print-directory lint llvm devmode
	TMPDIR="$(TEST_FILES)" MLGO_CORPUS_TEST_TOOLCHAIN="$(TEST_TOOLCHAIN)" \
		$(BIN)/python -m pytest $(PYTEST_WORKERS) $(PYTEST_ARGS)

fuzz: $(VENV)/.installed-dev llvm ## run each fuzzer for 20 seconds, or with FUZZ_ARGS
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

docs: $(VENV)/.installed-docs ## build the pages of docs/ in docs/_build/html
	$(BIN)/python -m sphinx -W -n -q -b html -d docs/_build/trees docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(VENV)/.installed-dev llvm devmode ## compare each stage with the tools that it replaces
	$(BIN)/python benchmarks/extract.py
	$(BIN)/python benchmarks/build.py
	$(BIN)/python benchmarks/logs.py
	$(BIN)/python benchmarks/interactive.py
	$(BIN)/python benchmarks/environments.py
	$(BIN)/python benchmarks/trace.py
	$(BIN)/python benchmarks/policies.py
	$(BIN)/python benchmarks/ir2native.py
	$(BIN)/python benchmarks/corpus.py
	$(BIN)/python benchmarks/pack.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/export.py
	$(BIN)/python benchmarks/report.py

wheel: $(VENV)/.installed-release ## build a wheel and an sdist in dist/, and check what a package index would get
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python scripts/check_wheel.py dist

policy: $(VENV)/.installed-dev llvm ## make the policy that comes with the package, from sources, in $(POLICY): most of an hour
	@command -v cmake >/dev/null || sh scripts/apt-install.sh cmake
	$(BIN)/python scripts/make_policy.py $(POLICY)

llvm: ## install the LLVM tools for tests, where possible
	@sh scripts/setup-llvm.sh

devmode: $(VENV)/.installed-dev llvm ## build the development-mode compiler for tests, where possible
	@sh scripts/setup-devmode.sh $(BIN)/mlgo-corpus "$(TEST_TOOLCHAIN)"

clean: ## remove everything that make made, except LLVM
	rm -rf "$(TEST_TOOLCHAIN)" $(VENV) demo dist .mypy_cache .pytest_cache .ruff_cache .hypothesis docs/_build
	find mlgo_corpus tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@sh scripts/setup-venv.sh "$(PYTHON)" $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml
	@echo "installing mlgo-corpus and a compiler into $(VENV) (first time: downloads about 200 MB, takes 700 MB on disk)"
	@$(PIP_INSTALL) -e '.[zig,report,learn]'
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml
	@echo "installing mlgo-corpus, a compiler and the test tools into $(VENV)"
	@$(PIP_INSTALL) -e '.[zig,dev]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-release: $(BIN)/python pyproject.toml
	@$(PIP_INSTALL) 'build>=1.2' 'twine>=6.1'
	@touch $@

$(VENV)/.installed-docs: $(BIN)/python pyproject.toml
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@
