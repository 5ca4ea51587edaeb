# `make demo` and `make test` do all the set-up that they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# All tests of a file run in one process, so that they share fixtures, and so do those in a browser (tests/conftest.py);
# in order, so that the long files of app come first.
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder
# One thread per process: small tensors are slower with more, and tests run in two processes.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
# Large counters, and those that have little to show: of these the zoo has scores and no weights.
SCORES_ONLY := '[hs]*/lstm-4L' 'selective/rnn-[24]L' '*/rwkv6-[24]L' 'selective-bos/*-2L' 'mod10/sine-4L' \
	'vanilla_succession*/*-4L' 'mod10/[nr]ope-4L' 'shifted_start/rope-4L-*'

.PHONY: demo zoo fuzz test test-all lint types install lock clean help

help:
	@echo "make demo      train a mod-10 counter, write a report of what is inside it, and open the explorer"
	@echo "make test      lint, types and quick tests (5 minutes on two cores)"
	@echo "make test-all  the same and the slow tests: clusters, kills, notebooks, recipes, oracles from PyPI (half an hour)"
	@echo "make fuzz      send 17,000 hostile inputs to files, command lines, run folders and URLs (minutes)"
	@echo "make zoo       train the shipped counters again (hours; it resumes) and ship them"
	@echo "make lock      renew requirements.lock from pyproject.toml"

demo: install
	rm -rf runs/demo
	$(BIN)/countlens train --task mod10 --position ape --snapshots 16 --out runs/demo
	$(BIN)/countlens report runs/demo --out runs/demo/report
	@echo "the report is runs/demo/report/report.html; now the explorer (make demo EXPLORE=no skips it)"
ifneq ($(EXPLORE),no)
	$(BIN)/countlens explore
endif

zoo: install
	$(BIN)/countlens sweep checkpoints/zoo.toml
	$(BIN)/countlens ship runs/zoo.jsonl --out checkpoints --scores-only $(SCORES_ONLY)

test: lint types
	$(PYTEST)

test-all: lint types
	$(PYTEST) -m ""

fuzz: install
	$(BIN)/python -m tests.fuzz.run

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install
	$(BIN)/mypy

install: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "CountLens needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# torch's local version (+cpu, +cu130) depends on the machine and is removed from the lock.
lock: install
	$(BIN)/pip install --quiet --disable-pip-version-check pip-tools
	$(BIN)/pip-compile --quiet --strip-extras --all-extras --all-build-deps --allow-unsafe --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml
	sed -i.old -E 's/^(torch==[0-9.]+)\+[a-z0-9.]+/\1/' requirements.lock && rm requirements.lock.old

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
