# make run          the sample tools and the proxy in front of them, with calls to paste
# make test         format, lint, types, floors, docs and tests, without the large sets: about 4 minutes
# make test-all     the same with the large sets (generated cases, attacks, real parties): what .ci/run runs
#
# make fmt          formats the code, and mends what the linter can
# make lint types   parts of `make test`
# make hooks        checks each commit before git makes it: format, lint, types, message
# make locks        takes each extension away from a copy of the code: the rest still works
# make docs         writes the pages that are made from the code
# make site         the documentation as a site with search, in build/site; a broken link ends it
# make bench        this proxy beside its peers (docs/performance.md)
# make conformance  the conformance suite of MCP, directly and through the proxy (docs/mcp.md)
# make reliability  a soak with faults (docs/evidence/reliability.md)
# make evaluate     what repairs and a model's corrections are worth: ENDPOINT=http://.../v1 MODEL=name (docs/correction.md)
# make soak         attacks and healthy calls side by side for ten minutes
# make attack       the fuzzers, each with a seed and a bound
# make corpora      replays collections of real calls, kept beside the repository
# make differential every recorded call through this version and another, byte for byte: BEFORE=commit
# make pictures     takes the pictures of docs/console.md, each page of the console in both themes
# make vendor       fetches the libraries of the console's pages, with npm
# make cluster      a real single-node Kubernetes here, and the chart tried on it (docs/evidence/kubernetes-tried.md)
# make dist         the wheel and the source archive, checked as the package index would
# make release      the signed image for several architectures and the signed chart, sent to a registry (docs/release.md)
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

# Bytecode is kept: else each of a run's processes compiles the code, and rewrites the tests, anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-all wheel dist locks fmt hooks checks lint types bench corpora differential evaluate conformance reliability soak attack docs site cluster pictures vendor release lock clean

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

$(VENV)/release.stamp: $(VENV)/test.stamp requirements-release.lock
	@$(PIP) install -r requirements-release.lock
	@touch $@

run: $(VENV)/run.stamp
	@$(BIN)/python -m proxy demo

# One file that `pip install` and `pipx install` take on another machine, in dist/.
wheel: $(VENV)/test.stamp
	$(BIN)/python -m hatchling build -t wheel -d dist

# The wheel and the source archive, checked as the package index would.
dist: $(VENV)/release.stamp
	rm -f dist/*.whl dist/*.tar.gz
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz

# More workers than cores: most of a run is waiting for sockets and processes, and a file's tests stay together.
test: checks
	$(BIN)/pytest -n 5 --dist loadfile -m 'not large and not locks'

test-all: checks
	$(BIN)/pytest -n 3 --dist loadfile --durations=20 -m 'not locks'

locks: $(VENV)/test.stamp
	$(BIN)/pytest -n 3 --dist loadgroup -m locks tests/extensions/test_locks.py

# Side by side, for each keeps one core busy.
checks: $(VENV)/test.stamp
	@$(MAKE) --no-print-directory -j 2 types lint $(VENV)/bytecode.stamp

# The first run's bytecode is written by one process: else every worker of pytest writes it, at the same time. What the
# tests lack is for pytest itself to say.
$(VENV)/bytecode.stamp: $(VENV)/test.stamp
	@$(BIN)/pytest --collect-only >$(VENV)/collected.log 2>&1 || true
	@touch $@

lint: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python .ci/language.py

types: $(VENV)/test.stamp
	$(BIN)/mypy

fmt: $(VENV)/test.stamp
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

hooks: $(VENV)/test.stamp
	@$(PIP) install 'pre-commit~=4.7'
	@$(BIN)/pre-commit install

# This proxy beside its peers, side by side in one run (docs/performance.md). More options: make bench BENCH='--install'
bench: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks.proxies $(BENCH)

# Collections of real calls, kept beside the repository: every one replayed at every level. Takes minutes.
CORPORA ?= ../shared/data

corpora: $(VENV)/test.stamp
	@test -d $(CORPORA) || { echo 'No folder $(CORPORA): say make corpora CORPORA=/path/to/data' >&2; exit 2; }
	$(BIN)/python -m tests.corpora.run_all $(CORPORA)

# Every recorded call of tests/data through this version and that of a commit, both served: answers, what the tool saw, log
# lines, metrics and kept calls have to be the same. Takes half an hour; a part of the calls: DIFFERENTIAL='--every 10'
BEFORE ?= HEAD

differential: $(VENV)/test.stamp
	$(BIN)/python -m tests.corpora.run_differential $(BEFORE) $(DIFFERENTIAL)

# The conformance suite of MCP against its own server and client, directly and through the proxy, at every revision. More
# options: make conformance CONFORMANCE='--ways url --revisions 2026-07-28 --no-clients'
conformance: $(VENV)/test.stamp
	@bash .ci/parties >/dev/null
	$(BIN)/python -m tests.parties.conformance $(CONFORMANCE)

# Ten minutes of faults, and every hostile request of the collection: writes docs/evidence/reliability.md.
SOAK ?= 600

reliability: $(VENV)/test.stamp
	$(BIN)/python -m tests.reliability --seconds $(SOAK)

# The share of calls that arrives right without repairs, with them, and with corrections by a model of yours. More
# options: make evaluate SIDE=model (the calls of models: docs/chat.md), EVALUATE='--file mine.jsonl --key-env MODEL_KEY'
evaluate: $(VENV)/run.stamp
	@$(BIN)/python -m proxy evaluate $(if $(SIDE),--side $(SIDE)) $(if $(ENDPOINT),--endpoint $(ENDPOINT)) $(if $(MODEL),--model $(MODEL)) $(EVALUATE)

# Ten minutes in which every attack that was ever found runs beside healthy calls: none may be late, memory stays flat.
soak: $(VENV)/test.stamp
	$(BIN)/python -m tests.attacks.soak --seconds $(SOAK)

# The fuzzers: HTTP beside node, Go and nginx where they are installed, calls with and without a task, JSON, verdicts
# beside two other engines, MCP, upstream answers, second meanings of what was repaired.
SEED ?= 1
SCALE ?= 1

attack: $(VENV)/test.stamp
	$(BIN)/python -m tests.attacks --seed $(SEED) --scale $(SCALE)

# The pages that are made from the code.
docs: $(VENV)/test.stamp
	$(BIN)/python -m tests.docs.config_schema
	$(BIN)/python -m tests.docs.config_page
	$(BIN)/python -m tests.docs.defaults
	$(BIN)/python -m tests.docs.metrics
	$(BIN)/python -m tests.docs.repair
	$(BIN)/python -m tests.docs.chart_values

# In an environment of its own: structlog would load packages that come with it.
$(VENV)/docs.stamp: $(VENV)/test.stamp requirements-docs.lock
	@echo 'Installing what builds the site (once) ...' >&2
	@$(BIN)/python -m venv $(VENV)/site
	@$(VENV)/site/bin/python -m pip --disable-pip-version-check --quiet install -r requirements-docs.lock
	@touch $@

site: $(VENV)/docs.stamp
	@NO_MKDOCS_2_WARNING=1 $(VENV)/site/bin/mkdocs build
	@echo build/site/index.html

pictures: $(VENV)/test.stamp
	$(BIN)/python -m tests.extensions.console.pictures

vendor: $(VENV)/python.stamp
	$(BIN)/python .ci/vendor.py

# A real Kubernetes, built once (half an hour) and cached outside of the repository. Needs root and Go; says what it
# lacks otherwise.
cluster: $(VENV)/test.stamp
	@bash .ci/cluster >/dev/null && bash .ci/helm >/dev/null
	$(BIN)/python -m tests.cluster

# Sends the image and the chart, both signed, to a registry:
# make release REGISTRY=registry.example.com/tools KEY=release@example.com COSIGN_KEY=cosign.key
# DRY_RUN=1 signs the chart and prints the rest.
release:
	@bash .ci/helm >/dev/null
	@[ -n "$(DRY_RUN)" ] || bash .ci/signing >/dev/null
	@bash .ci/release

# Pins what is installed now. Run it in a fresh .venv after changing the dependencies of pyproject.toml.
lock: $(VENV)/release.stamp
	$(BIN)/python .ci/lock.py

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
