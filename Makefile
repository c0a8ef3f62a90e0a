# The words that people, .ci/run and .github/workflows/ci.yml share. VENV is where the tools are, PYTHON what makes it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Some images keep Python from storing what it compiled, which makes each process of the tests twice as slow.
unexport PYTHONDONTWRITEBYTECODE

EXTRAS := docker,postgres,research,mcp,experiments,otel

.PHONY: help install install-lowest install-newer-mcp constraints format lint typecheck docs test test-slow coverage check

help:  ## list these words
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 16

install:  ## make $(VENV) with everything a contributor needs
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -c .ci/constraints.txt -e '.[dev]'

install-lowest:  ## make $(VENV) with the lowest versions that pyproject.toml allows, to run the tests with
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile -q --python $(BIN)/python --resolution lowest-direct $(patsubst %,--extra %,$(subst $(comma), ,$(EXTRAS))) \
		pyproject.toml -o $(VENV)/lowest.txt
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -c $(VENV)/lowest.txt -e '.[$(EXTRAS),test]'

install-newer-mcp:  ## make $(VENV) with mcp 2.x, to run the tests of MCP servers with
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -e '.[mcp,server,test]' 'mcp>=2'

constraints:  ## renew deploy/constraints.txt: what the service is installed with, by version and hash
	echo 'hatchling>=1.27' | $(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --custom-compile-command 'make constraints' \
		--extra server --extra workers pyproject.toml - -o deploy/constraints.txt

format:  ## write the code the way ruff formats it, and let it mend what it can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint:  ## formatting, ruff's rules, and the layers of imports
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports

typecheck:  ## mypy, strict; of the tests only the names
	$(BIN)/mypy
	$(BIN)/mypy examples docs/hooks.py
	$(BIN)/mypy --config-file .ci/mypy-tests.ini --cache-dir .mypy_cache/tests $$(git ls-files 'tests/*.py' ':!tests/data')

docs:  ## build the site; a broken link or name is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir $(VENV)/site

test:  ## the fast suite
	$(BIN)/pytest $(ARGS)

test-slow:  ## many processes, PostgreSQL, packages, a browser, the rest of large tables
	$(BIN)/pytest -m slow -n 2 $(ARGS)

coverage:  ## the fast suite, with the share of lines it runs
	$(BIN)/pytest --cov --cov-report=term:skip-covered $(ARGS)

check: lint typecheck docs test  ## what to run before you propose a change

comma := ,
