# Everything that a person or a machine runs here. Each target installs what it needs into .venv first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# As many as there are cores, and more for tests that wait for processes of their own.
CORES := $(shell $(PYTHON) -c "import os; print(os.cpu_count() or 1)")
WORKERS ?= $(CORES)
PATIENT_WORKERS ?= $(shell expr 2 '*' $(CORES))
TESTS ?= tests
# How long the chaos run brings trouble; resting and judging come on top.
MINUTES ?= 30
# How many histories the simulation plays, and the first one's number.
SEEDS ?= 20
FROM ?= 1
# How many processes the kill matrix kills.
KILLS ?= 1000
# Every page that a person reads.
PAGES := README.md CONTRIBUTING.md CHANGELOG.md docs providers/profiles
# Peers to measure against, apart: gpuhunt brings a package named tests, which would stand before our own.
PEERS := $(VENV)/peers
# How much of ledger/ its own tests run on PostgreSQL, in percent.
LEDGER_ALONE := 99

.PHONY: help install clients agent stacks lock pin-image demo test test-all test-rest soak simulate mutants-guards previous-release agent-generations kills chaos pictures bench mutants lint audit docs site picture clean

help: ## Say what there is.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

install: $(READY) ## Install everything into .venv (and, as root on Debian, a Chromium, bubblewrap and an SSH server for the tests).

# Somebody who waits sees how far it is; a log does not.
QUIET := $(shell test -t 2 || echo --quiet)

$(READY): pyproject.toml uv.lock
	@echo "Installing into $(VENV): about a minute the first time."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/deploy/uv.txt
	@UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --locked --inexact --compile-bytecode $(QUIET)
	@$(BIN)/python -m compileall -q bot ledger migrations providers
	@$(BIN)/python tests/support/debian_packages.py --install
	@touch $@

clients: $(VENV)/clients/.ready ## Install the clouds' own clients beside, so that the tests run them too (20 s).

$(VENV)/clients/.ready: tests/clients/requirements.txt $(READY)
	@test -x $(VENV)/clients/bin/python || $(BIN)/python -m venv $(VENV)/clients
	$(BIN)/uv pip sync --quiet --python $(VENV)/clients/bin/python $<
	@touch $@

# A failed installation leaves no archive that is not whole.
agent: $(READY) ## Build the program that rented machines run, dist/gpu-shopper-agent.pyz: the same bytes each time.
	@rm -rf dist/agent
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes --only-binary :all: --python-version 3.10 --target dist/agent -r bot/agent/requirements.txt
	@$(BIN)/python -m bot.agent.build dist/agent dist/gpu-shopper-agent.pyz

stacks: $(READY) ## Lock the software stacks again, after a change of bot/rules/stacks/stacks.toml.
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tests.rules.stacks.lock

lock: $(READY) ## Lock the packages again, after a change of pyproject.toml: what is installed here, in images and by the Action.
	@$(BIN)/uv lock

pin-image: $(READY) ## Write the digest of the base image into the Dockerfile, or say that no registry answers.
	@$(BIN)/python -m tests.deployment.pin_image $(ARGS)

demo: $(READY) ## Try it: prints the address to open, and a line for the command line and REST; Ctrl-C ends it.
	@exec $(BIN)/gpu-shopper demo $(ARGS)

test: $(READY) ## Run the tests that start no processes and play no scenarios, with the coverage gates (5 min on two cores).
	@$(BIN)/python tests/coverage_gate.py --workers $(WORKERS) $(TESTS)

test-all: ## Run every test on both databases, with real processes and a browser; the ledger's tests alone first.
test-rest: ## Run of them what `make test` left out: before a release, and after a change of what they start.
test-all test-rest: $(READY)
	@$(BIN)/python tests/support/debian_packages.py
	@$(BIN)/python tests/coverage_gate.py --workers $(WORKERS) --least ledger/=$(LEDGER_ALONE) --database postgres tests/ledger
	@$(BIN)/python -m pytest -n $(PATIENT_WORKERS) --dist worksteal --durations=40 --$(@:test-%=%) $(TESTS)

soak: $(READY) ## Thirty days in one run (MONTH_SEED plays one again), then the tests that kill, race and repeat, at full size.
	@$(BIN)/python tests/support/debian_packages.py
	@failed=0; \
	$(BIN)/python -m pytest -n 4 --soak --timeout 600 tests/scenarios/month/test_month.py || failed=$$?; \
	$(BIN)/python -m pytest -n $(PATIENT_WORKERS) --dist worksteal --soak --timeout 600 --ignore tests/scenarios/month/test_month.py \
		tests/scenarios tests/services || failed=$$?; \
	exit $$failed

simulate: $(READY) ## Play SEEDS=20 histories of faults and crashes in virtual time, FROM=1 on; a failure prints how to play it again.
	@exec $(BIN)/python -m tests.scenarios.simulation --seeds $(SEEDS) --from $(FROM) $(ARGS)

mutants-guards: $(READY) ## Remove one guard of the laws at a time, and name the test or the simulated history that notices it.
	@exec $(BIN)/python -m tests.scenarios.simulation.guards.mutated --seeds $(SEEDS) --from $(FROM)

previous-release: $(READY) ## Run a rental with the code of COMMIT=d8cb0526, in an environment of its own, on a ledger of today's schema.
	@exec $(BIN)/python -m tests.deployment.previous_release $(if $(COMMIT),--commit $(COMMIT))

agent-generations: $(READY) ## Rent with the agent of COMMIT=d8cb0526 and today's service, then with today's agent and that service.
	@exec $(BIN)/python -m tests.deployment.agent_generations $(if $(COMMIT),--commit $(COMMIT))

chaos: $(READY) ## Faults, kills, pauses and crashes against real processes for MINUTES=30, then a verdict (CHAOS_SEED plays one again).
	@exec $(BIN)/python -m tests.scenarios.chaos --minutes $(MINUTES) $(if $(CHAOS_SEED),--seed $(CHAOS_SEED)) $(ARGS)

kills: $(READY) ## `kill -9` of real processes, KILLS=1000, at every await of the steps that buy, end and book, on both databases.
	@exec $(BIN)/python -m tests.scenarios.kills --kills $(KILLS)

pictures: $(READY) ## Take the pictures in docs/pictures, with a real browser: the request card, and a machine's messages.
	@PICTURES=docs/pictures $(BIN)/python -m pytest --all -q tests/scenarios/processes/test_card_pictures.py \
		tests/scenarios/processes/test_machine_pictures.py

bench: $(READY) ## Measure: market, ranking, costs, cards and lists, the scheduler with fleets, throughput (with GPU_SHOPPER_DATA), REST, 200 signed commands a second, saturation; ARGS=speed with OLD=COMMIT compares two commits.
	@test -e $(PEERS)/.ready || { $(BIN)/uv export --quiet --locked --only-group bench --no-emit-project -o $(PEERS).txt >/dev/null \
		&& $(BIN)/uv pip install --quiet --no-deps --require-hashes --target $(PEERS) -r $(PEERS).txt && touch $(PEERS)/.ready; } \
		|| echo "gpuhunt can't be installed here, so the ranking is not judged."
	@exec $(BIN)/python -m tests.bench $(ARGS)

mutants: $(READY) ## Name what the tests of OLD=COMMIT catch and those of HEAD do not: 300 mutants an area; run again to go on.
	@exec $(BIN)/python -m tests.mutants --old $(OLD) $(ARGS)

# Addresses that need the network are not tried; those inside the repository are, with their anchors.
lint: $(VENV)/.ready-docs ## ruff, mypy, import contracts, schema, generated pages, links, spelling and prose, known vulnerabilities.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/gpu-shopper db check --fresh
	$(BIN)/gpu-shopper docs --check
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions .github/actions/run/action.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows docs/programs/github-actions.yml
	@$(MAKE) --no-print-directory site
	$(BIN)/lychee --offline --include-fragments --no-progress --quiet $(PAGES)
	$(BIN)/codespell $(PAGES)
	$(BIN)/proselint check --config docs/lint/proselint.json $(PAGES)
	@$(MAKE) --no-print-directory audit

# uv ends with 1 for a vulnerable package, and with 2 when it could not ask.
audit: $(READY) ## Compare the locked packages with the database of known vulnerabilities, where it can be reached.
	@code=0; UV_HTTP_RETRIES=0 $(BIN)/uv audit --frozen --preview-features audit-command || code=$$?; \
	if [ $$code -eq 2 ]; then echo "Known vulnerabilities were not checked: no database of them can be reached."; else exit $$code; fi

$(VENV)/.ready-docs: $(READY) # What only the site and the linters of its pages need; a lint or a site installs it.
	@UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --locked --inexact --compile-bytecode $(QUIET) --group docs
	@touch $@

docs: $(VENV)/.ready-docs ## Write the generated pages again, and build the documentation site in site/ (offline).
	$(BIN)/gpu-shopper docs
	@$(MAKE) --no-print-directory site
	@echo "Open site/index.html"

site: $(VENV)/.ready-docs # A warning fails it: an unknown link or anchor, a page that no list names.
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --doctree-dir site/.doctrees docs site

picture: $(READY) ## Record the README's animated walk again (docs/walk.webp); needs a Chromium.
	@exec $(BIN)/python -m tests.pictures

clean: ## Remove what installing and testing left.
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage* htmlcov dist .mutants
