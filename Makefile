# One menu. Every target sets up what it needs; on a fresh machine `make demo` and `make test` are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BOTH   := -n 2 --dist loadfile  # two processes; a file's tests stay together, they share what is slow to make
# CPython 3.11 may crash when one thread formats a traceback with carets while pytest parses for another (gh-106905).
export PYTHONNODEBUGRANGES := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick test-spark test-cluster test-browser test-yarn newcomer test-live test-wheel test-spark-4.1 check lint types docs results screenshots examples bench lock clean

help:            ## this list
	@grep -hE '^[a-z][a-z0-9.-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY)  ## virtual environment, locked dependencies, and a Java where there is none

$(READY): requirements.lock pyproject.toml src/penstock_papers/pyproject.toml scripts/ensure_java.sh
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable . --editable src/penstock_papers
	scripts/ensure_java.sh $(BIN)
	touch $@

demo: setup      ## the main job: a dataflow under control, about two minutes, with a summary at the end
	$(BIN)/python examples/demo.py

test: setup      ## the tests: the quick ones, then those on real Spark, in local mode and on a loopback cluster
	$(BIN)/pytest tests --ignore=tests/spark -m "not wheel" $(BOTH)
	$(BIN)/pytest tests/spark -m "not live and not cluster and not yarn" $(BOTH)
	@$(MAKE) --no-print-directory test-cluster

test-quick: setup  ## everything that needs no Spark
	$(BIN)/pytest tests --ignore=tests/spark -m "not slow" $(BOTH)

test-spark: setup  ## every test on real Spark, those on the loopback cluster last
	$(BIN)/pytest tests/spark -m "not yarn"

test-cluster: setup  ## only the tests on a loopback cluster: moves, scaling, kills (ten minutes)
	$(BIN)/pytest tests/spark -m "cluster and not live and not slow"

test-cluster-slow: setup  ## the slow ones of them: hundreds of state partitions, kills, silence, frozen drivers (half an hour)
	$(BIN)/pytest tests/spark -m "cluster and slow"

test-wheel: setup  ## the product alone: its wheel in a clean environment (needs a package index, a few minutes)
	$(BIN)/pytest tests/test_wheel.py

test-browser: setup  ## the page in a headless Chromium, which is installed where it may be
	scripts/ensure_chromium.sh
	$(BIN)/pytest tests/web -m browser

test-yarn: setup  ## a program under control on a real YARN, whose jars come from Maven Central (four minutes)
	$(BIN)/pytest tests/spark/test_yarn.py -s

newcomer: setup  ## the newcomer's path of the guide in a fresh clone, timed (needs a package index, ten minutes at most)
	$(BIN)/python -m scripts.newcomer

test-live: setup  ## policies at work on real Spark under load; they compare times and want a quiet machine
	$(BIN)/pytest tests/spark -m live

test-spark-4.1: setup  ## the Spark tests again, on the oldest supported PySpark
	test -x $(VENV)-4.1/bin/python || $(PYTHON) -m venv $(VENV)-4.1
	$(VENV)-4.1/bin/pip install --quiet --require-hashes -r requirements-4.1.lock
	$(VENV)-4.1/bin/pip install --quiet --no-deps --editable . --editable src/penstock_papers
	$(VENV)-4.1/bin/pytest tests/spark -m "not live and not yarn"

lint: setup      ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup     ## mypy, strict
	$(BIN)/mypy

screenshots: setup  ## the pictures of the docs, made in a headless Chromium
	scripts/ensure_chromium.sh
	$(BIN)/python -m scripts.screenshots

docs: setup      ## write docs/reference anew from the code
	$(BIN)/python -m scripts.reference

results: setup   ## every paper's trials, and docs/results/reproductions.md from what they printed (under an hour)
	mkdir -p results
	$(BIN)/penstock reproduce all --json > results/reproductions.json || test $$? -eq 1
	$(BIN)/python -m scripts.results results/reproductions.json

examples: setup  ## every example, as CI runs them
	$(BIN)/pytest tests/test_examples.py

check: lint types test test-wheel  ## what CI runs

bench: setup     ## the list of benchmarks; penstock bench NAME runs one
	$(BIN)/penstock bench

LOCK = uv pip compile -q pyproject.toml src/penstock_papers/pyproject.toml --extra dev --extra solvers --generate-hashes \
	--no-emit-index-url --no-emit-package penstock --no-header --python-version 3.11

lock:            ## resolve dependencies anew (needs uv)
	$(LOCK) -o requirements.lock
	echo 'pyspark==4.1.*' | $(LOCK) --constraints - -o requirements-4.1.lock

clean:           ## remove what make made
	rm -rf $(VENV) $(VENV)-4.1 .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
