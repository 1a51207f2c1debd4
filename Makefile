# make run          the sample tools and the proxy in front of them, with calls to paste
# make test         format, lint, types, floors, tests and docs: what .ci/run runs
#
# make fmt          formats the code, and mends what the linter can
# make lint types   parts of `make test`
# make docs         writes the pages that are made from the code
# make bench        this proxy beside its peers (docs/performance.md)
# make reliability  a soak with faults (docs/reliability.md)
# make corpora      replays collections of real calls, kept beside the repository
# make lock         pins what is installed
# make clean        removes everything that was made here
#
# Needs Python 3.11 or newer and make; everything else goes into .venv. Another interpreter: make PYTHON=python3.13 run

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help run test fmt lint types bench corpora reliability docs lock clean

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

# Stamps: a second run finds them newer than what they were made from and starts at once.
$(VENV)/python.stamp:
	@test -n "$(PYTHON)" || { echo 'No Python 3.11 or newer found: install one, or say make PYTHON=/path/to/python3' >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/run.stamp: $(VENV)/python.stamp requirements.lock pyproject.toml
	@echo 'Installing (once) ...' >&2
	@$(PIP) install -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp requirements-dev.lock
	@echo 'Installing the test tools (once) ...' >&2
	@$(PIP) install -r requirements-dev.lock
	@touch $@

run: $(VENV)/run.stamp
	@$(BIN)/python -m proxy demo

# Two workers: most of a run is waiting for sockets and processes, and a file's tests stay together.
test: lint types
	$(BIN)/pytest -n 2 --dist loadfile

lint: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/test.stamp
	$(BIN)/mypy

fmt: $(VENV)/test.stamp
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

# This proxy beside its peers, side by side in one run (docs/performance.md). More options: make bench BENCH='--install'
bench: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks.proxies $(BENCH)

# Collections of real calls, kept beside the repository: every one replayed at every level. Takes minutes.
CORPORA ?= ../shared/data

corpora: $(VENV)/test.stamp
	@test -d $(CORPORA) || { echo 'No folder $(CORPORA): say make corpora CORPORA=/path/to/data' >&2; exit 2; }
	$(BIN)/python -m tests.corpora.run_all $(CORPORA)

# Ten minutes of faults, and every hostile request of the collection: writes docs/reliability.md.
SOAK ?= 600

reliability: $(VENV)/test.stamp
	$(BIN)/python -m tests.reliability --seconds $(SOAK)

# The pages that are made from the code.
docs: $(VENV)/test.stamp
	$(BIN)/python -m tests.docs.defaults
	$(BIN)/python -m tests.docs.metrics
	$(BIN)/python -m tests.docs.repair
	$(BIN)/python -m tests.docs.chart_values

# Pins what is installed now. Run it in a fresh .venv after changing the dependencies of pyproject.toml.
lock: $(VENV)/test.stamp
	$(BIN)/python .ci/lock.py

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
