# Every target first makes the checkout ready; a second run starts at once.
PY := .venv/bin/python
ARGS ?=
SEEDS ?= 1-10000
UNIT = tests/unit tests/harness tests/model tests/golden tests/conformance \
	--ignore=tests/conformance/test_remote_storage.py tests/test_tidy.py tests/test_public_api.py
# Slots and workers of Spark are processes that import this checkout anew: compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE
# Tests sync files and databases all the time: in memory, where there is enough of it.
IN_MEMORY = $$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 2000000 { print "TMPDIR=/dev/shm" }')
WITH_JAVA = JAVA_HOME="$$(sh scripts/java_home.sh)"

.DEFAULT_GOAL := help
.PHONY: help setup demo unit test archive lint type docs screenshots campaign chaos ends fuzz all lock bench bench-quick

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## install Java if it is missing and make .venv (PYTHON=... chooses the interpreter)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh

demo: setup ## run the demonstration
	@$(WITH_JAVA) .venv/bin/weir demo $(ARGS)

unit: setup ## run the tests that need no Spark, no server and no campaign
	@env $(IN_MEMORY) WEIR_TEST_EXAMPLES=0.05 PYTHON=$(PY) sh scripts/unit.sh -m "not spark and not hdfs and not kafka and not postgres and not mariadb and not campaign" $(UNIT) $(ARGS)

test: setup $(if $(strip $(ARGS)),,lint type archive) ## check style, types and all tests (ARGS="-k ttl": only those tests)
	@$(WITH_JAVA) $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

archive: setup
	@$(WITH_JAVA) $(PY) -m tests.jvm_archive

lint: setup ## check style and formatting
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

type: setup ## check types
	@$(PY) -m mypy

docs: setup ## write the generated pages and pictures anew
	@$(PY) tests/docs/configuration_page.py --write
	@$(PY) tests/docs/command_page.py --write
	@$(PY) tests/docs/moving_page.py --write
	@$(PY) tests/docs/public_api.py
	@$(PY) tests/docs/pictures.py --write

screenshots: setup ## make the screenshots of the documentation anew (needs Chromium)
	@$(PY) -m tests.page.screenshots

campaign: setup ## crash 10,000 seeded jobs, in two processes (SEEDS=1-500 chooses others)
	@PYTHON=$(PY) sh scripts/campaign.sh $(SEEDS) $(ARGS)

chaos: setup ## attack a job on Spark with real faults (ARGS="--faults 100 --seed 7")
	@$(WITH_JAVA) $(PY) -m tests.chaos $(ARGS)

ends: setup ## attack a job from Kafka to Kafka and PostgreSQL, and both servers, with 40 faults
	@$(WITH_JAVA) $(PY) -m tests.chaos --ends --faults 40 $(ARGS)

fuzz: setup ## feed mutated bytes to all formats and to REST, ten minutes (ARGS="--seconds 60 --only rest")
	@$(PY) -m tests.fuzz $(ARGS)

bench: setup ## measure Weir and its peers, some hours (ARGS="--only a" selects)
	@$(WITH_JAVA) $(PY) -m benchmarks $(ARGS)

bench-quick: setup ## measure Weir and the floors, about two minutes
	@$(WITH_JAVA) $(PY) -m benchmarks --quick --output benchmarks/.data $(ARGS)

all: test ## what CI runs

lock: setup ## resolve the dependencies anew into requirements.lock (needs uv)
	@sh scripts/lock.sh --upgrade
