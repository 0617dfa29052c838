PYTHON ?= python3
BIN := .venv/bin
# The many programs that tests start keep their compiled modules, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup packages demo test coverage mutate check compiled bench evaluate scoreboard fit findings docs golden dist device-test ab-campaign cluster-smoke

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.done ## build .venv with everything for use and tests

.venv/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

packages: ## install the Debian packages that tests need, as root or by sudo
	@sh tests/packages.sh

demo: setup ## simulate the paper's parallelism study, print its table and write its report to demo/report.html
	rm -rf demo/study
	$(BIN)/charllm sweep charllm-ppt-parallelism --workers 2 --out demo/study
	@file=$$($(BIN)/charllm report demo/study -o demo/report.html) && \
	echo "Report of the study: open this file in any browser (no network needed), for example with: xdg-open $$file" && \
	echo "$(CURDIR)/$$file"

test: setup packages check compiled ## check, then run the tests
	$(BIN)/pytest -n 4 --dist worksteal

coverage: setup packages compiled ## run the tests under coverage.py and print the lines of src/charllm that ran
	$(BIN)/pytest -n 4 --dist worksteal --cov --cov-report=term

mutate: setup compiled ## change 300 small things, one at a time, and list those that no test notices (ARGS='--seed 2 --count 100')
	$(BIN)/python -m benchmarks.mutation.run $(ARGS)

compiled: setup ## compile what is compiled at its first use, once for all programs that follow
	@$(BIN)/python -m compileall -q src
	@$(BIN)/charllm simulate --model llama3-8b --cluster h200x8 --gbs 8 > /dev/null

check: setup ## format, lint, types, import order
	$(BIN)/ruff format --check src tests benchmarks docs/*.py
	$(BIN)/ruff check src tests benchmarks docs/*.py
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: setup ## print rates and accuracies (minutes; CALCULON=FOLDER compares searches)
	$(BIN)/python benchmarks/specs.py
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python benchmarks/time_speed.py
	$(BIN)/python benchmarks/api_overhead.py
	$(BIN)/python -m benchmarks.loop_speed
	$(BIN)/python -m benchmarks.explorer
	$(BIN)/python -m benchmarks.explorer growth
	$(BIN)/python -m benchmarks.hostile_requests
	$(BIN)/python -m benchmarks.published_tuning
	$(BIN)/python -m benchmarks.doctor_trials
	$(BIN)/python -m benchmarks.plan_probability
	$(BIN)/python -m benchmarks.placement
	$(BIN)/python -m benchmarks.fuzz
	$(BIN)/python -m benchmarks.hostile_input
	CHARLLM_RANDOM_SPECS=10000 $(BIN)/pytest tests/random_specs
	CHARLLM_LAW_SPECS=2000 CHARLLM_LAW_SEED=2 $(BIN)/pytest -n 2 tests/laws
	CHARLLM_KILLS=100 $(BIN)/pytest tests/measure/test_sampler.py -k kill -s
	$(BIN)/python -m benchmarks.kills
	$(BIN)/python -m benchmarks.interruptions
	$(BIN)/python -m benchmarks.interruptions long
	$(BIN)/python -m benchmarks.sweep_speed
	$(BIN)/python -m benchmarks.slurm_study
	$(BIN)/python -m benchmarks.plan_speed $(CALCULON)
	$(BIN)/python -m benchmarks.plan_problems
	$(BIN)/python -m benchmarks.plan_winners

docs: setup ## build the documentation into site/
	$(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

device-test: ## run the checks that need a real GPU (python3 with torch, numpy, pynvml)
	PYTHONPATH=src python3 tests/device/run.py

ab-campaign: ## play pairs of runs in turns on this GPU and score their predicted differences (AB=predictions and TIMELINES=DIR, committed; 15 minutes)
	PYTHONPATH=src:. python3 benchmarks/device/ab_campaign.py play ab_campaign --predicted $(AB) --timelines $(TIMELINES) $(ARGS)

cluster-smoke: setup ## try everything once on this machine's GPUs or in a Slurm allocation (10 minutes; ARGS='--nodes 2')
	$(BIN)/charllm smoke $(ARGS)

evaluate: setup ## score everything that ships with charllm, published rows with constants fitted without them (minutes)
	$(BIN)/charllm validate all

scoreboard: setup ## predict all of that again; write the held-out predictions, intervals, scoreboard and docs/accuracy.md
	$(BIN)/python -m charllm.evaluate.scoreboard

fit: setup ## refit the constants that only published rows can tell, and those of every fold (minutes)
	$(BIN)/python -m charllm.evaluate.fit
	$(MAKE) scoreboard

dist: ## build the source archive and the wheel into dist/, install the wheel into an empty environment and use it
	PYTHON=$(PYTHON) sh tests/dist.sh dist

findings: setup ## repeat the paper with intervals and condition maps, and renew docs/findings.md (20 minutes; continues where it stopped)
	$(BIN)/charllm reproduce charllm-ppt --full --out build/charllm-ppt
	cp build/charllm-ppt/findings.md docs/findings.md

golden: setup ## rewrite the golden results and show what changed
	$(BIN)/python tests/golden/record.py
	git diff --stat tests/golden
