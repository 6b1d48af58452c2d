# `make demo` and `make test` do all the set-up on a machine with Python 3.11 and nothing else.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
WORKERS ?= 2
TEST_EXTRAS := spark,sketches,studio,onnx,docs,dev
LOCK := requirements-test.lock
# What torch itself needs. Its own builds differ from place to place, and so do their hashes.
BESIDE_TORCH := filelock fsspec jinja2 networkx setuptools sympy typing-extensions

.PHONY: demo check test test-all lint style types tests all-tests format docs bench mutants lock audit clean

demo: $(VENV)/.installed
	$(VENV)/bin/tulle demo

# Three gates. check: while you work, what changed against BASE. test: what every commit must pass.
# test-all: also what is marked long, each with the reason why; the release checklist asks for it.
# Bytecode is written also where the environment says no: without it each process compiles again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal
BASE ?= HEAD

check: lint
	$(PYTEST) -q -m "not long" $$($(VENV)/bin/python tests/changed.py --base $(BASE))

# Types are checked beside the tests: on a fresh clone mypy takes one core for half a minute.
test: style
	@$(MAKE) --no-print-directory -j 2 types tests

test-all: style
	@$(MAKE) --no-print-directory -j 2 types all-tests

tests: $(VENV)/.installed-dev
	$(PYTEST) -m "not long"

all-tests: $(VENV)/.installed-dev
	$(PYTEST)

lint: style types

style: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.installed-dev
	$(VENV)/bin/mypy

format: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(VENV)/.installed
	$(PIP) install --quiet -c constraints.txt -e ".[train,docs]"
	$(VENV)/bin/mkdocs build --strict

bench: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/speed/samplers.py
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/speed/calibration.py
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/speed/index_drawing.py
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/speed/encoding.py
	$(VENV)/bin/python benchmarks/speed/predict.py
	$(VENV)/bin/python benchmarks/speed/mosaic.py
	$(VENV)/bin/python benchmarks/speed/dpsgd.py
	$(VENV)/bin/python benchmarks/speed/synth.py
	$(VENV)/bin/python benchmarks/speed/prepare.py
	$(VENV)/bin/python benchmarks/quality/synth_shapes.py
	$(VENV)/bin/python benchmarks/quality/banded_noise.py
	$(VENV)/bin/python benchmarks/quality/trust_models.py
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/quality/level_budgets.py
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/quality/clip_shares.py
	$(VENV)/bin/python benchmarks/quality/reach.py
	$(VENV)/bin/python benchmarks/speed/measure.py
	$(VENV)/bin/python benchmarks/speed/measure.py --large 100000000
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/python benchmarks/quality/selection.py
	$(VENV)/bin/python benchmarks/speed/select_speed.py
	$(VENV)/bin/python benchmarks/docs_tables.py
	$(VENV)/bin/python benchmarks/docs_mosaic_figures.py
	$(VENV)/bin/python benchmarks/docs_benchmarks.py
	$(VENV)/bin/python benchmarks/docs_comparison.py
	$(VENV)/bin/python benchmarks/walks.py

# About an hour. Not part of `make test`: it asks what the tests would notice, not whether they pass.
mutants: $(VENV)/.installed-dev
	$(VENV)/bin/python tests/mutation/mutate.py --seed 1 --number 200 --jobs $(WORKERS)

# The newest versions that pyproject.toml allows, with the hashes of all their files: for every
# platform, and every Python from 3.11 on.
lock:
	printf '%s\n' $(BESIDE_TORCH) | sh .ci/with-tool "$(PYTHON)" "uv>=0.13,<0.14" uv pip compile \
		pyproject.toml - --extra $(TEST_EXTRAS) --constraint constraints.txt --upgrade --no-config \
		--system-certs --universal --python-version 3.11 --generate-hashes --no-annotate --quiet \
		--custom-compile-command "make lock" --output-file $(LOCK) >/dev/null

# Asks a service on the network about known vulnerabilities; what it cannot answer for is a failure.
audit:
	sh .ci/with-tool "$(PYTHON)" "pip-audit>=2.10,<3" pip-audit --strict --disable-pip \
		--require-hashes --requirement $(LOCK)
	grep '^torch==' constraints.txt | sh .ci/with-tool "$(PYTHON)" "pip-audit>=2.10,<3" pip-audit \
		--strict --disable-pip --no-deps --requirement /dev/stdin

clean:
	rm -rf $(VENV) build dist site runs demo-run

# A venv that was built half-way has no marker and is built again.
$(VENV)/.installed: pyproject.toml constraints.txt
	@sh .ci/make-venv "$(PYTHON)" "$(VENV)"
	$(PIP) install --quiet -c constraints.txt -e ".[train]"
	@touch $@

# Tests run with the versions of the lock file, each file checked against its hash. Then comes
# torch, and whatever the lock leaves open on this machine.
$(VENV)/.installed-dev: pyproject.toml constraints.txt $(LOCK) .ci/install-test-tools
	@sh .ci/make-venv "$(PYTHON)" "$(VENV)"
	@sh .ci/install-test-tools
	$(PIP) install --quiet --require-hashes --no-deps -r $(LOCK)
	$(PIP) install --quiet -c constraints.txt -e ".[train,$(TEST_EXTRAS)]"
	@touch $(VENV)/.installed $@
