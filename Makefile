# make demo: everything from set-up to the main job, offline. make test: every check, or those of one package
# (make test PACKAGE=serve); make check: the quick ones; make fuzz: damaged files.
# All work on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The tests and the examples in docstrings: of everything, or of one package.
TESTS := $(if $(PACKAGE),$(wildcard $(foreach name,$(PACKAGE) $(PACKAGE).py,src/deepmf/$(name)) tests/$(PACKAGE) tests/test_$(PACKAGE).py),tests src)

# Bytecode of the rewritten tests is kept, whatever the shell says: the next run collects them in half the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check types all-tests quick-tests fuzz attack format docs dist bench bench-start bench-fields peers clean

demo: $(READY)
	@$(BIN)/deepmf demo

# Without its cache (.mypy_cache, which only make clean removes) mypy takes a minute of one core, so it runs beside the tests.
test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs=2 types all-tests

# Before every commit: all but the tests marked slow, with fewer drawn examples.
check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs=2 types quick-tests

types: $(READY)
	$(BIN)/mypy

# A file's tests stay together: they share fitted models. Files come in the order of tests/conftest.py, longest first.
all-tests: $(READY)
	$(BIN)/pytest --doctest-modules $(TESTS) --numprocesses=auto --dist=loadfile --no-loadscope-reorder

quick-tests: $(READY)
	$(BIN)/pytest -m "not slow" --hypothesis-profile=quick --numprocesses=auto --dist=loadfile --no-loadscope-reorder

# Damaged files of every kind, 10,000 of each: hours. make fuzz OPTIONS="--variants 500" takes minutes.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz $(OPTIONS)

# A service and its files under attack, in minutes: make attack OPTIONS="postgres clock" runs a part.
attack: $(READY)
	PYTHONPATH=tools $(BIN)/python -m attack $(OPTIONS)
	$(if $(OPTIONS),,$(BIN)/python tools/attack_rows.py 12)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python tools/result_tables.py
	$(BIN)/python tools/proofs.py
	$(BIN)/python tools/concept_pictures.py
	$(BIN)/python tools/notebook.py

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "the pages are in build/docs/index.html"

# Wheel and sdist, in dist/.
dist: $(READY)
	rm -rf dist
	$(BIN)/hatchling build

# Speed and memory: hours, of which `defaults` (up to ten million entries) and `imputers` take most. make bench QUICK=1
# runs each on small matrices in minutes, to see that it works.
bench: $(READY)
	@for name in reading latency extension als imputers ranks defaults serving; do \
	    echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py || exit 1; done

# What commands take from start to end, and their memory.
bench-start: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/start.py

# Sensors, genotypes and drug targets, where their data are in the folder of data sets: minutes. Lines are added to
# results/fields.jsonl.
bench-fields: $(READY)
	for model in OrdinalDMF BayesianMF DMFImputer; do \
		$(BIN)/python benchmarks/fields.py sensors genotypes --model $$model | tee -a results/fields.jsonl; \
	done
	for model in OrdinalDMF BayesianMF; do \
		$(BIN)/python benchmarks/fields.py drug-targets --effort quick --model $$model | tee -a results/fields.jsonl; \
	done

# Other libraries, each in an environment of its own, on the same splits: hours. make peers OPTIONS=--quick takes minutes.
peers: $(READY)
	PYTHONPATH=benchmarks $(BIN)/python -m peers $(OPTIONS)

# The environment is rebuilt from nothing whenever the pins or the declared dependencies change.
$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("deepmf needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)" if sys.version_info < (3, 11) else 0)'
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet torch
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache
