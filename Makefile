# One door to everything: `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# The tests start Homeport a hundred times: each module is compiled once, not once a process.
unexport PYTHONDONTWRITEBYTECODE

VENV ?= .venv
BIN := $(VENV)/bin
# A virtual environment knows its own path: a copied or moved checkout makes a new one.
HERE := $(shell printf %s "$(CURDIR)" | cksum | cut -d ' ' -f 1)
LOCKED := $(VENV)/.locked-$(HERE)
READY := $(VENV)/.ready-$(HERE)

# Workers of pytest-xdist, one a core; each starts what it needs on ports and in folders of its own.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal --durations 20 $(if $(CI),-p no:cacheprovider)
STAGES := lint unit integration conformance-sample fuzz-sample chaos-sample
MORE_STAGES := long browser chart conformance fuzz chaos cluster-test
UV := uv==0.13.8
CLUSTER ?= examples/sample-cluster.yaml
HOST ?= 127.0.0.1
PORT ?= 8888

.PHONY: help setup run test test-all $(STAGES) $(MORE_STAGES) control-plane oracle chart-docs screenshots live scale-down soak kept bench loadtest refusals attempts lock format clean wheel krew image release

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-18s %s\n", $$1, $$2 }'

setup: $(READY) ## make .venv from the lock (PYTHON=python3.12 chooses the interpreter)
	@echo "ready: $(BIN)/homeport"

run: $(READY) ## serve the sample cluster on http://127.0.0.1:8888 (CLUSTER=, HOST=, PORT=)
	@sed 's|127.0.0.1:8888|$(HOST):$(PORT)|' examples/curl.txt
	@exec $(BIN)/homeport serve --log-format console --cluster $(CLUSTER) --host $(HOST) --port $(PORT)

test: $(READY) ## before a pull request: lint, unit, integration, and samples of conformance, fuzz and chaos
	@$(call in-background,control-plane oracle); $(call played,$(STAGES))

test-all: test ## everything CI runs: make test, then long, browser, chart, conformance, fuzz and chaos in short, cluster-test (as root)
	@$(call played,$(MORE_STAGES))

lint: $(READY) ## ruff, formatting, Dockerfiles, types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/hadolint Dockerfile tests/cluster/tests.Dockerfile
	@$(BIN)/mypy

unit: $(READY) ## every test that needs no control plane, but for those marked long
	@$(PYTEST) -m 'not long' --ignore tests/integration --ignore tests/chart --ignore tests/cluster --ignore tests/browser

integration: $(READY) control-plane ## the tests against a real control plane, but for those marked long; they wait more than they work
	@$(PYTEST) -n $$((1 + $$(nproc))) -m 'not long' tests/integration

long: $(READY) control-plane ## the tests marked long, and every property with four times the examples
	@$(BIN)/python -m tests.controlplane.binaries --controllers
	@$(BIN)/python -m tests.controlplane.binaries --kubernetes 1.35.4
	@$(PYTEST) -m 'long or hypothesis' --hypothesis-profile long --ignore tests/chart --ignore tests/cluster --ignore tests/browser

control-plane: $(READY) ## build kube-apiserver, kube-scheduler and etcd, once, into a cache
	@$(BIN)/python -m tests.controlplane.binaries

oracle: $(READY) ## build the Go plugins that make conformance compares with, once, into a cache
	@$(BIN)/python -m tests.conformance.oracle

chart: $(READY) control-plane ## the Helm chart: rendered, refused, dry-run, installed and taken away on a real API server
	@$(BIN)/python -m tests.controlplane.tools
	@$(PYTEST) tests/chart

chart-docs: $(READY) ## make the chart's README from its values, and the schema of config from the settings
	@$(BIN)/python -m tests.chart.settings_schema
	@$(BIN)/python -m tests.controlplane.tools --document helm/homeport

chaos: $(READY) control-plane ## try to break a hard constraint or lose a home, and count (SHORT=1, STOCK=1, ONLY="race kills restarts", SEED=, JSON=)
	@$(BIN)/python -m tests.chaos $(if $(SHORT),--short) $(if $(STOCK),--stock) $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(JSON),--json $(JSON))

conformance-sample: $(READY) ## compare a fixed sample of generated cases with the Go plugins of the default release
	@$(BIN)/python -m tests.conformance.compare --count 2100 --seed 2 --minor 1.36.3

fuzz-sample: $(READY) ## the smallest make fuzz
	@$(BIN)/python -m tests.fuzz --sample

chaos-sample: $(READY) control-plane ## the smallest make chaos
	@$(BIN)/python -m tests.chaos --sample

fuzz: $(READY) ## send the running service what nobody should, and count (SHORT=1, ONLY=requests, SEED=, COUNT=, JSON=)
	@$(BIN)/python -m tests.fuzz $(if $(SHORT),--short) $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(COUNT),--count $(COUNT)) $(if $(FAMILY),--family $(FAMILY)) $(if $(CASE),--case $(CASE)) \
	    $(if $(JSON),--json $(JSON))

conformance: $(READY) ## compare generated cases with the Go plugins (SHORT=1, COUNT=, SEED=, MINOR=1.36.3, TOPIC="taints hard")
	@COUNT='$(COUNT)' SEED='$(SEED)' MINOR='$(MINOR)' TOPIC='$(TOPIC)' $(BIN)/python -m tests.conformance.compare \
	    $(if $(SHORT),--count 4200 --seed 3)

live: $(READY) control-plane ## compare with real kube-schedulers on a real API server (ONLY=, CASES=, CLUSTERS=, PODS=, COUNT=, SEED=)
	@ONLY='$(ONLY)' CASES='$(CASES)' CLUSTERS='$(CLUSTERS)' PODS='$(PODS)' COUNT='$(COUNT)' SEED='$(SEED)' \
	    $(BIN)/python -m tests.conformance.live

scale-down: $(READY) ## the spread that scale-downs by the real ReplicaSet controller leave, with and without scaleDown: Spread (COUNT=, SEED=)
	@$(BIN)/python -m tests.controlplane.binaries --controllers
	@COUNT='$(COUNT)' SEED='$(SEED)' $(BIN)/python -m tests.conformance.live.scale_downs

soak: $(READY) ## a million pod events: recounts on the way, memory must stay (EVENTS=, FULL=1)
	@EVENTS='$(EVENTS)' FULL='$(FULL)' $(BIN)/python -m tests.conformance.soak

kept: $(READY) ## a million random changes: what is kept of verdicts must equal what is judged afresh (CHANGES=, SEED=)
	@CHANGES='$(CHANGES)' SEED='$(SEED)' $(BIN)/python -m tests.conformance.kept

bench: $(READY) control-plane ## measure speed, side by side with kube-scheduler's own plugin (SHORT=1, ONLY=scheduling,…, OUTPUT=, CHECK=1)
	@$(BIN)/python -m tests.load $(if $(SHORT),--short) --only '$(ONLY)' --output '$(OUTPUT)' $(if $(CHECK),--check)

loadtest: $(READY) ## load the sample cluster's service with hey, verb by verb (SECONDS_EACH=, AT_ONCE=)
	@SECONDS_EACH='$(SECONDS_EACH)' AT_ONCE='$(AT_ONCE)' $(BIN)/python -m tests.load.loadtest

refusals: $(READY) control-plane ## what 1,000 refused pods cost while others arrive, on a real kube-scheduler
	@$(BIN)/python -m tests.load.standing_refusals

attempts: $(READY) control-plane ## how often pods that wait for ever are tried, beside stock kube-scheduler
	@$(BIN)/python -m tests.load.stuck_pods

format: $(READY) ## rewrite the code in house format
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

wheel: $(READY) ## build the wheel into dist/
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist

krew: $(READY) ## build the kubectl plugin for krew and its manifest into dist/ (URL=)
	@$(BIN)/python -m tests.krew $(if $(URL),--url '$(URL)')

image: $(READY) ## build the image with buildah, podman or docker (IMAGE=, BASE=, MEASURE=1)
	@$(BIN)/python -m tests.cluster.image $(if $(IMAGE),--image '$(IMAGE)') $(if $(BASE),--base '$(BASE)') \
	    $(if $(MEASURE),--measure)

release: $(READY) ## build wheel, sdist, chart, image, krew plugin, bill of materials and checksums into dist/, no registry needed (BASE=, URL=)
	@$(BIN)/python -m tests.release $(if $(BASE),--base '$(BASE)') $(if $(URL),--url '$(URL)')

browser: $(READY) ## the page in a real browser: Debian's Chromium, installed if this runs as root
	@$(BIN)/python -m tests.debian
	@$(PYTEST) tests/browser

screenshots: $(READY) ## take the pictures of README and docs in Debian's Chromium
	@$(BIN)/python -m tests.debian
	@$(BIN)/python -m tests.browser.screenshots

cluster-test: $(READY) ## as root: the image and the chart on a cluster of three real nodes (ONLY="drain or restart")
	@$(BIN)/python -m tests.cluster $(if $(ONLY),-k '$(ONLY)')

lock: $(VENV)-lock/bin/uv ## resolve the dependencies anew into the lock files (UPGRADE=1 takes newer versions)
	@$(call compile,requirements.lock,)
	@$(call compile,requirements-dev.lock,--group dev --constraint requirements.lock)
	@$(call compile,requirements-otlp.lock,--extra otlp --constraint requirements-dev.lock)
	@$(call compile,requirements-build.lock,--constraint requirements-dev.lock,--group pyproject.toml:build)

clean: ## remove everything that was made
	@rm -rf .venv .venv-* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stages $(1) one after the other, to the first that fails, and how long each took.
played = times=; for stage in $(1); do \
	    echo "==> $$stage"; started=$$SECONDS; $(MAKE) $$stage SHORT=1 || failed="$$stage failed"; \
	    times="$$times$$(printf '\n    %-18s %4d s' $$stage $$((SECONDS - started)))"; \
	    if [ "$${failed:-}" ]; then break; fi; \
	done; echo "==> $${failed:-passed}:$$times"; [ -z "$${failed:-}" ]

# Build the targets $(1) while the rest of the recipe runs, which has the processors first.
in-background = set -m; nice $(MAKE) $(1) >/dev/null & builder=$$!; set +m; \
	trap 'kill -- -$$builder 2>/dev/null || true' EXIT

compile = $< pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	$(if $(UPGRADE),--upgrade) $(or $(3),pyproject.toml) $(2) --output-file $(1)

$(VENV)-lock/bin/uv:
	@$(find-python); "$$python" -m venv $(VENV)-lock
	@$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check $(UV)

$(LOCKED): requirements-dev.lock
	@$(find-python); echo "==> $(VENV) with $$("$$python" --version)"; "$$python" -m venv --clear $(VENV)
	@echo "==> once: $$(grep -c '==' $<) packages of $< into $(VENV), half a minute to two"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(READY): $(LOCKED) pyproject.toml
	@echo "==> homeport itself into $(VENV), some seconds"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Each candidate is tried, not only looked up: a version manager's shim may exist and not run.
find-python = python=; for candidate in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
	    if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        python=$$candidate; break; \
	    fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "no Python >= 3.11 with the venv module among: $(or $(PYTHON),python3.13 python3.12 python3.11 python3);" \
	        "install one (Debian: python3-venv), or name it: make PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi
