# The one entry to everything. Needs python3 (>= 3.11), make and a network for the first set-up; works in .venv only.

PYTHON ?= python3
TESTS ?= tests
ARGS ?=
BENCH ?=
STUDIES ?= fsdp_scaling error_rates

VENV := .venv/bin/python
STAMP := .venv/.stamp
PIP := $(VENV) -m pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo compare test check lint types imports bench bench-large analyses golden clean

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## capture the three regimes on this machine, triage each, print the verdicts
	@echo '==> demo'
	@$(VENV) -m workloads.demo $(ARGS)

compare: $(STAMP) ## what FSDP's forward prefetch did in a pair of committed captures
	@echo '==> compare: two ranks, prefetch off and on'
	@$(VENV) -m profkit compare traces/fsdp_vlm_prefetch_off traces/fsdp_vlm_prefetch_on $(ARGS)

test: $(STAMP) ## the whole test suite; TESTS=path selects, ARGS='-k word -x' goes to pytest
	@echo '==> test: pytest, two processes'
	@$(VENV) -m pytest -n 2 $(ARGS) $(TESTS)

check: lint types imports ## lint, types and the import layers

lint: $(STAMP) ## ruff: format and rules
	@echo '==> lint: ruff format, ruff check'
	@$(VENV) -m ruff format --check --quiet
	@$(VENV) -m ruff check --quiet

types: $(STAMP) ## mypy, strict, on profkit/
	@echo '==> types: mypy profkit'
	@$(VENV) -m mypy profkit

imports: $(STAMP) ## import-linter: who may import whom
	@echo '==> imports: import-linter'
	@.venv/bin/lint-imports --no-logo

bench: $(STAMP) ## profkit, HTA and a bare decoder on one 50 MB trace, as ratios; BENCH='--trace FILE'
	@echo '==> bench: a minute'
	@$(VENV) -m bench.triage $(BENCH)

bench-large: $(STAMP) ## the same on a generated 1 GB trace; BENCH=--hta adds HTA (minutes, 6 GB of memory)
	@echo '==> bench-large: a few minutes'
	@$(VENV) -m bench.large $(BENCH)

analyses: $(STAMP) ## measure the studies again and write what they publish: minutes; STUDIES=data_removal adds others
	@for study in $(STUDIES); do echo "==> analyses: $$study"; $(VENV) -m analyses.$$study.run $(ARGS) || exit; done

golden: $(STAMP) ## rewrite the golden reports; review the diff
	@echo '==> golden'
	@$(VENV) -m tests.golden $(ARGS)

clean: ## remove .venv, caches and what demo and runs left
	@echo '==> clean'
	@rm -rf .venv out reports build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@echo '==> set-up 1/3: .venv with $(PYTHON)'
	@$(PYTHON) -m venv .venv
	@echo '==> set-up 2/3: a pip that knows dependency groups'
	@$(PIP) install --upgrade 'pip>=25.1'
	@echo '==> set-up 3/3: profkit and its tools, pinned in constraints.txt (torch is the large one: minutes)'
	@$(PIP) install -c constraints.txt -e '.[capture,hta]' --group dev
	@touch $@
