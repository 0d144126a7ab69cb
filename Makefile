# The one entry to everything. Needs python3 (>= 3.11), make and a network for the first set-up; works in .venv only.

PYTHON ?= python3
TESTS ?= tests
ARGS ?=
BENCH ?=
# What make profile, nsys and ncu run: SCRIPT=train.py ARGS='--lr 1', or a workload: WORKLOAD=data|overhead|kernel|baseline|fsdp_vlm
SCRIPT ?=
WORKLOAD ?= baseline
ROUND ?= 1
KERNEL ?=
TRACE ?=
STUDIES ?= fsdp_scaling error_rates ddp token_skew

VENV := .venv/bin/python
STAMP := .venv/.stamp
S3_STAMP := .venv-s3/.stamp
NATIVE := profkit/native/compiled.library
NODE_STAMP := report/node_modules/.stamp
PIP := $(VENV) -m pip --quiet --disable-pip-version-check

TORCHRUN := $(VENV) -m torch.distributed.run --nproc-per-node 2
REGIME := $(if $(filter fsdp_vlm,$(WORKLOAD)),$(TORCHRUN) -m workloads.fsdp_vlm,$(VENV) -m workloads.train --regime $(WORKLOAD))
JOB := $(if $(SCRIPT),$(VENV) $(SCRIPT),$(REGIME)) $(ARGS)
# Where a tool is absent, and ncu where there is no GPU, the command is printed, with the reason of each flag.
GPU = $(wildcard /dev/nvidiactl /dev/dxg /proc/driver/nvidia/version)
NSYS_HOW = $(if $(shell command -v nsys),$(if $(GPU),,--whole),--dry-run)
NCU_HOW = $(if $(and $(shell command -v ncu),$(GPU)),,--dry-run)
HOTTEST = $(if $(KERNEL),--kernel '$(KERNEL)',$(if $(TRACE),--from $(TRACE)))

.DEFAULT_GOAL := help
.PHONY: help demo compare profile nsys ncu native native-asan native-fuzz native-compare test afresh long full s3 fuzz drawn-ranks simulated mutants check lint types imports gpu bench bench-large bench-nsys bench-ranks accuracy blind table field analyses recipe golden schemas report screens pictures docs bench-pages report-check release-check clean

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## capture the three regimes on this machine, triage each, print the verdicts
	@echo '==> demo'
	@$(VENV) -m workloads.demo $(ARGS)

compare: $(STAMP) ## what FSDP's forward prefetch did in a pair of committed captures
	@echo '==> compare: two ranks, prefetch off and on'
	@$(VENV) -m profkit compare traces/fsdp_vlm_prefetch_off traces/fsdp_vlm_prefetch_on $(ARGS)

profile: $(STAMP) ## torch.profiler, then nsys, then ncu on SCRIPT=train.py ARGS='...' or WORKLOAD=overhead
	@echo '==> profile 1/3: torch.profiler'
	@$(VENV) -m profkit run --folder out/profile --overwrite -- $(JOB)
	@$(MAKE) --no-print-directory nsys
	@$(MAKE) --no-print-directory ncu TRACE=$(if $(NCU_HOW),,out/profile)

nsys: $(STAMP) ## Nsight Systems on steady steps of SCRIPT= or WORKLOAD=; prints the command where nsys is absent
	@echo '==> nsys'
	@$(VENV) -m profkit nsys $(NSYS_HOW) -o out/nsys --overwrite -- $(JOB)

ncu: $(STAMP) ## Nsight Compute on the kernel KERNEL=name or the hottest of TRACE=file; same variables
	@echo '==> ncu'
	@$(VENV) -m profkit ncu $(NCU_HOW) $(HOTTEST) -o out/ncu --overwrite -- $(JOB)

native: $(STAMP) ## compile the scanner of traces into the checkout, which pip install does as well; needs a C compiler
	@echo '==> native: $(NATIVE)'
	@$(VENV) hatch_build.py

native-asan: $(NATIVE) ## the scanner under gcc's sanitizers, over mutated arrays of our traces: ARGS=60 seconds
	@echo '==> native-asan: out/native'
	@$(VENV) -m tests.ingest.native $(or $(ARGS),60)

native-fuzz: $(NATIVE) ## the scanner beneath libFuzzer, from a committed corpus: ARGS=60 seconds; needs clang
	@echo '==> native-fuzz: out/native'
	@$(VENV) -m tests.ingest.native.fuzz $(or $(ARGS),60)

native-compare: $(NATIVE) ## the scanner beside Python on mutated arrays and files: ARGS='100000 --seed 7', some four minutes of CPU
	@echo '==> native-compare: unlike inputs go to out/native'
	@$(VENV) -m tests.ingest.native.compare $(ARGS)

test: $(STAMP) $(NATIVE) ## the whole test suite; TESTS=path selects, ARGS='-k word -x' goes to pytest
	@echo '==> test: pytest, two processes'
	@env -u PYTHONDONTWRITEBYTECODE $(VENV) -m pytest -n 2 --dist worksteal $(ARGS) $(TESTS)

afresh: $(STAMP) ## the tests that capture jobs on this machine and judge them, with three seeds each: some four minutes
	@echo '==> afresh: one after the other'
	@env -u PYTHONDONTWRITEBYTECODE PROFKIT_SEEDS=3 PROFKIT_IN_FULL=1 $(VENV) -m pytest -m afresh $(ARGS) $(TESTS)

full: $(STAMP) ## all cases of the tests of which make test tries a sample (compiled steps, trainers, hypothesis): minutes
	@echo '==> full: two processes'
	@env -u PYTHONDONTWRITEBYTECODE PROFKIT_IN_FULL=1 $(VENV) -m pytest -n 2 --dist worksteal -m sampled $(ARGS) $(TESTS)

LONG_S ?= 120
long: $(STAMP) ## some of the tests that take long, drawn anew each time: LONG_S=120 seconds of one core
	@echo '==> long: two processes, LONG_S=$(LONG_S)'
	@seed=$${PROFKIT_LONG_SEED:-$$(date +%s)}; echo "PROFKIT_LONG_SEED=$$seed draws the same tests again"; \
	  env -u PYTHONDONTWRITEBYTECODE PROFKIT_LONG_S=$(LONG_S) PROFKIT_LONG_SEED=$$seed $(VENV) -m pytest -n 2 -m long $(ARGS) $(TESTS)

s3: $(S3_STAMP) ## traces in an S3 bucket, of a server on this machine (moto): requests, retries, 10,000 objects
	@echo '==> s3: pytest in .venv-s3'
	@.venv-s3/bin/python -m pytest $(ARGS) tests/ingest/test_object_store.py

fuzz: $(STAMP) $(NATIVE) ## mutated traces, exports, tables, ranks: two minutes; ARGS='--minutes 10 --seed 7 --kinds kineto,nsys --jobs 2'
	@echo '==> fuzz: finds go to out/fuzz'
	@$(VENV) -m tests.fuzz $(ARGS)

drawn-ranks: $(STAMP) ## 300 drawn jobs of eight ranks, a fault or none in each: who names it? ARGS='--jobs 20 --healthy 10' or '--seed 7'
	@echo '==> drawn-ranks: some five minutes'
	@$(VENV) -m tests.ranks.drawn_jobs $(ARGS)

mutants: $(STAMP) ## changed rules that no test notices: minutes; TESTS='tests/timeline' ARGS='--seed 7 --count 20 --again'
	@echo '==> mutants: results go to out/mutants'
	@$(VENV) -m tests.mutants $(ARGS) $(TESTS)

simulated: $(STAMP) ## 200 simulated jobs: predicted ceilings beside true removal gains; ARGS='--jobs 50 --seed 7'
	@echo '==> simulated: half a minute'
	@$(VENV) -m tests.sim $(ARGS)

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

gpu: $(STAMP) ## one call for a machine with a GPU: regimes captured and judged, changes measured, ncu; under ten minutes
	@echo '==> gpu: results go to out/gpu'
	@$(VENV) -m bench.gpu $(ARGS)

bench: $(STAMP) ## profkit, HTA and a bare decoder on one 50 MB trace, as ratios; BENCH='--trace FILE'
	@echo '==> bench: a minute'
	@$(VENV) -m bench.triage $(BENCH)

bench-large: $(STAMP) ## the same on a generated 1 GB trace; BENCH=--hta adds HTA (minutes, 6 GB of memory)
	@echo '==> bench-large: a few minutes'
	@$(VENV) -m bench.large $(BENCH)

bench-nsys: $(STAMP) ## an nsys export of 1 GB: reading beside a bare SELECT of the same columns, a whole triage
	@echo '==> bench-nsys: some five minutes'
	@$(VENV) -m bench.nsys $(BENCH)

bench-ranks: $(STAMP) ## 4,096 simulated ranks of 2 MB and 512 of 20: parent's memory, a rank's time, faults; BENCH='--only cost'
	@echo '==> bench-ranks: ten minutes on two cores'
	@$(VENV) -m bench.ranks $(BENCH)

accuracy: $(STAMP) ## how often profkit is right: cells with measured labels; ARGS=--quick in ten minutes, '--only cnn/' or '--limit-minutes 60'
	@echo '==> accuracy: goes on where it stopped'
	@$(VENV) -m analyses.accuracy.run $(ARGS)

blind: $(STAMP) ## programs of strangers: times without a profiler, then asked once, ROUND=1; ARGS='--only NAME'; then the scores
	@echo '==> blind: round $(ROUND)'
	@$(VENV) -m analyses.blind.run $(ROUND) $(ARGS)
	@$(VENV) -m analyses.blind.score $(ROUND)

table: $(STAMP) ## the table of faults of strangers, rebuilt: times, asks, scores; ARGS='--new' those never asked about
	@echo '==> table'
	@$(VENV) -m analyses.blind.table $(ARGS)

FIELD ?= ../shared/data
field: $(STAMP) ## how right profkit is on public captures that lie in FIELD=folder; '--look first --keep FILE' keeps the answers
	@echo '==> field: $(FIELD)'
	@$(VENV) -m analyses.field.judge $(FIELD) $(ARGS)

analyses: $(STAMP) ## measure the studies again and write what they publish: minutes; STUDIES=data_removal adds others
	@for study in $(STUDIES); do echo "==> analyses: $$study"; $(VENV) -m analyses.$$study.run $(ARGS) || exit; done

recipe: $(STAMP) ## layers of a training recipe, measured and predicted: forty minutes; ARGS=--quick in ten, '--device cuda' on a GPU
	@echo '==> recipe: goes on where it stopped'
	@$(VENV) -m analyses.vlm_recipe.run $(ARGS)

golden: $(STAMP) ## rewrite the golden reports; review the diff
	@echo '==> golden'
	@$(VENV) -m tests.golden $(ARGS)

schemas: $(STAMP) ## keep the JSON Schemas of this version in tests/frozen; refuses what breaks a reader of an earlier one
	@echo '==> schemas'
	@$(VENV) -m tests.frozen

report: $(NODE_STAMP) ## build the HTML report's script and style into profkit/render/html/static
	@echo '==> report: vite'
	@cd report && npm run --silent build -- --logLevel warn

screens: $(STAMP) ## the pictures of docs/screens, by chromium
	@echo '==> screens'
	@$(VENV) -m bench.pages screens

pictures: $(STAMP) ## the terminals and the decision tree of docs/pictures, from captures
	@echo '==> pictures'
	@$(VENV) -m bench.site pictures

docs: $(STAMP) ## the site, into out/docs; a warning or a dead link fails
	@echo '==> docs: sphinx, strict'
	@$(VENV) -m sphinx --fresh-env --fail-on-warning --nitpicky --keep-going --quiet docs out/docs

bench-pages: $(STAMP) ## panning 200,000 intervals in chromium; TRACE=file also measures -o report.html beside -f json
	@echo '==> bench-pages: a minute'
	@$(VENV) -m bench.pages frames
	@$(if $(TRACE),$(VENV) -m bench.pages cost $(TRACE))

report-check: $(NODE_STAMP) ## the report's script: lint, types, tests; a build that differs from the committed files fails
	@echo '==> report-check 1/4: eslint'
	@cd report && npm run --silent lint
	@echo '==> report-check 2/4: tsc'
	@cd report && npm run --silent types
	@echo '==> report-check 3/4: vitest'
	@cd report && npm run --silent test -- --reporter=dot
	@echo '==> report-check 4/4: build again and compare'
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && cd report && \
	PROFKIT_REPORT_OUT="$$out" npm run --silent build -- --logLevel warn && \
	for file in page.js page.css; do cmp "$$out/$$file" ../profkit/render/html/static/$$file || \
	{ echo "$$file is not what report/ builds: run make report and commit it"; exit 1; }; done

release-check: $(STAMP) ## build wheel and sdist, install and try them on Python 3.11 to 3.14, each extra alone: minutes; ARGS=--sample in two
	@echo '==> release-check: results go to out/release'
	@$(VENV) -m tests.release $(ARGS)

clean: ## remove .venv, caches and what demo and runs left
	@echo '==> clean'
	@rm -rf .venv .venv-s3 report/node_modules out reports build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@echo '==> set-up 1/3: .venv with $(PYTHON)'
	@$(PYTHON) -m venv .venv
	@echo '==> set-up 2/3: a pip that knows dependency groups'
	@$(PIP) install --upgrade 'pip>=25.1'
	@echo '==> set-up 3/3: profkit and its tools, pinned in constraints.txt (torch is the large one: minutes)'
	@$(PIP) install -c constraints.txt -e '.[capture,hta]' --group dev --group docs
# An installed package is compiled; in place it is not where PYTHONDONTWRITEBYTECODE is set, and every start compiles anew.
	@$(VENV) -m compileall -q profkit workloads
	@touch $@

$(S3_STAMP): pyproject.toml
	@echo '==> set-up: .venv-s3 with s3fs and moto'
	@$(PYTHON) -m venv .venv-s3
	@.venv-s3/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@.venv-s3/bin/python -m pip install --quiet --disable-pip-version-check -e . --group s3
	@touch $@

# Where there is no compiler the tests of the scanner are skipped, and all others read as Python does.
$(NATIVE): $(STAMP) hatch_build.py $(wildcard profkit/native/*.[ch])
	@$(VENV) hatch_build.py || echo '==> native: none, Python reads'

$(NODE_STAMP): report/package-lock.json
	@command -v npm >/dev/null || { echo 'make report and report-check need node 20.19 or later with npm: none found'; exit 1; }
	@echo '==> set-up: npm ci in report/'
	@cd report && npm ci --silent
	@touch $@
