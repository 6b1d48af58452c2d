# `make demo` and `make test` do all the set-up on a machine with Python 3.11 and nothing else.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
WORKERS ?= 2

.PHONY: demo test test-quick lint format docs bench mutants clean

demo: $(VENV)/.installed
	$(VENV)/bin/tulle demo

test: lint
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal

test-quick: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
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
	$(VENV)/bin/python benchmarks/docs_hybrid_figures.py
	$(VENV)/bin/python benchmarks/docs_benchmarks.py
	$(VENV)/bin/python benchmarks/docs_comparison.py

# About an hour. Not part of `make test`: it asks what the tests would notice, not whether they pass.
mutants: $(VENV)/.installed-dev
	$(VENV)/bin/python tests/mutation/mutate.py --seed 1 --number 200 --jobs $(WORKERS)

clean:
	rm -rf $(VENV) build dist site runs demo-run

# A venv that was built half-way has no marker and is built again.
$(VENV)/.installed: pyproject.toml constraints.txt
	@sh .ci/make-venv "$(PYTHON)" "$(VENV)"
	$(PIP) install --quiet -c constraints.txt -e ".[train]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed .ci/install-test-tools
	@sh .ci/install-test-tools
	$(PIP) install --quiet -c constraints.txt -e ".[train,report,spark,sketches,studio,docs,dev]"
	@touch $@
