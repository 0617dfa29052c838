PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup packages demo test check bench evaluate fit docs golden device-test cluster-smoke

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.done ## build .venv with everything for use and tests

.venv/.done: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

packages: ## install the Debian packages that tests need, as root or by sudo
	@sh tests/packages.sh

demo: setup ## simulate the paper's parallelism study and print it
	$(BIN)/charllm sweep charllm-ppt-parallelism

test: setup packages check ## check, then run the tests
	$(BIN)/pytest -n 3

check: setup ## format, lint, types, rooms
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: setup ## print rates and accuracies (minutes)
	$(BIN)/python benchmarks/specs.py
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python benchmarks/time_speed.py
	$(BIN)/python benchmarks/api_overhead.py
	$(BIN)/python -m benchmarks.loop_speed
	$(BIN)/python -m benchmarks.h100_caps
	$(BIN)/python -m benchmarks.doctor_trials
	$(BIN)/python -m benchmarks.fuzz
	CHARLLM_RANDOM_SPECS=10000 $(BIN)/pytest tests/random_specs
	CHARLLM_KILLS=100 $(BIN)/pytest tests/measure/test_sampler.py -k kill -s
	$(BIN)/python benchmarks/interruptions.py
	$(BIN)/python -m benchmarks.slurm_study

docs: setup ## build the documentation into site/
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python docs/reference.py
	$(BIN)/mkdocs build --strict --quiet

device-test: ## run the checks that need a real GPU (python3 with torch, numpy, pynvml)
	PYTHONPATH=src python3 tests/device/run.py

cluster-smoke: setup ## try everything once on this machine's GPUs or in a Slurm allocation (10 minutes; ARGS='--nodes 2')
	$(BIN)/charllm smoke $(ARGS)

evaluate: setup ## score published rows with constants fitted without them (minutes)
	$(BIN)/python -m charllm.evaluate.held_out

fit: setup ## refit the constants that only published rows can tell, and those of every fold (half an hour)
	$(BIN)/python -m charllm.evaluate.fit

golden: setup ## rewrite the golden results and show what changed
	$(BIN)/python tests/golden/record.py
	git diff --stat tests/golden
