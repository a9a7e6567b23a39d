# Every target first makes the checkout ready; a second run starts at once.
PY := .venv/bin/python
ARGS ?=
WITH_JAVA = JAVA_HOME="$$(sh scripts/java_home.sh)"

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint type all lock bench bench-quick

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## install Java if it is missing and make .venv (PYTHON=... chooses the interpreter)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh

demo: setup ## run the demonstration
	@$(WITH_JAVA) .venv/bin/weir demo $(ARGS)

test: setup lint type ## check everything: style, types, all tests (ARGS="-k ttl" selects tests)
	@$(WITH_JAVA) $(PY) -m pytest -n 2 --dist loadfile $(ARGS)

lint: setup ## check style and formatting
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

type: setup ## check types
	@$(PY) -m mypy

bench: setup ## measure Weir and its peers, an hour or two (ARGS="--only a" selects)
	@$(WITH_JAVA) $(PY) -m benchmarks $(ARGS)

bench-quick: setup ## measure Weir and the floors, about two minutes
	@$(WITH_JAVA) $(PY) -m benchmarks --quick --output benchmarks/.data $(ARGS)

all: lint type test ## what CI runs

lock: setup ## resolve the dependencies anew into requirements.lock (needs uv)
	@sh scripts/lock.sh --upgrade
