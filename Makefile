# The tasks of this repository. `make` alone lists them.
#
#   PYTHON=/path/to/python3   the interpreter of new environments (3.11 or newer)
#   ARGS='...'                arguments for serve, bench and pytest

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

ARGS ?=
PYTHON ?=
export PYTHON

VENV := .venv
BIN := $(VENV)/bin

# Tests start hundreds of servers: keep their bytecode in the environment, so that it is compiled once.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/bytecode
PY := $(BIN)/python
CONSOLE := server/src/tuskpoint_server/api/web/assets/index.html
CODE := $(wildcard server/src clients/python/src emulators bench examples tools tests)

.PHONY: help
help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environments ---------------------------------------------------------------------------------

.PHONY: setup
setup: env env-generate ## make the environments .venv and .venv-generate from the hashed requirements

.PHONY: env
env:
	@tools/setup.sh $(VENV) requirements/dev.txt clients/python server emulators

.PHONY: env-generate
env-generate:
	@tools/setup.sh .venv-generate requirements/generate.txt

.PHONY: lock
lock: env ## resolve requirements/*.in again (ARGS=--upgrade for newer releases)
	tools/lock.sh $(ARGS)

# --- running --------------------------------------------------------------------------------------

.PHONY: demo
demo: env ## run the example: an agent and its server are killed and resume; then another server continues the thread
	@$(PY) examples/document_agent/demo.py $(ARGS)

.PHONY: console-demo
console-demo: env $(CONSOLE) ## run the agent, and leave a server with the console on which to look at the runs
	@exec $(PY) examples/document_agent/console_demo.py $(ARGS)

.PHONY: demo-walrus
demo-walrus: env ## run the same with blobs on an emulated Walrus, then rebuild the server from the blobs alone
	@$(PY) examples/document_agent/demo_walrus.py $(ARGS)

.PHONY: example
example: env ## run the example of a framework with a server of its own (NAME=openai_agents)
	@$(PY) -m tools.frameworks example $(NAME)

.PHONY: serve
serve: env ## run the server for this machine, with the console if it is built (ARGS='--data-dir DIR --port 7400')
	@$(BIN)/tuskpoint-server dev $(ARGS)

.PHONY: walrus
walrus: env ## run an emulated Walrus (ARGS='--latency 5 --directory DIR')
	@$(BIN)/tuskpoint-walrus $(ARGS)

.PHONY: memwal
memwal: env ## run an emulated MemWal relayer (ARGS='--job-delay 30'); it prints what a server needs to use it
	@$(BIN)/tuskpoint-memwal $(ARGS)

# --- checking -------------------------------------------------------------------------------------

.PHONY: test
test: setup node-modules console-here ## run every check and every test (ARGS='-k NAME' for pytest; REQUIRED=browser fails if that group is skipped)
	@status=0; \
	tools/side_by_side.sh pytest -- lint check-docs clients-here emulators-here frameworks WORKERS=0 || status=$$?; \
	$(PY) -m tools.skipped_groups $(if $(REQUIRED),--required $(REQUIRED)) || status=$$?; \
	exit $$status

# A worker takes whole files, the slowest first. A third of the time it waits for servers, so there is one
# more than processors. WORKERS=0 runs all tests in one process, for a debugger.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
IN_WORKERS := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: pytest
pytest: setup
	$(PY) -m pytest -q $(IN_WORKERS) $(ARGS)

.PHONY: test-emulators
test-emulators: setup ## run the emulators' own tests
	$(PY) -m tools.emulators -n$(WORKERS) --dist=loadfile $(ARGS)

# For `make test`: runs them only if they have changed since they last passed.
.PHONY: emulators-here
emulators-here: setup
	@$(PY) -m tools.emulators --if-changed -n$(WORKERS) --dist=loadfile

.PHONY: frameworks
frameworks: setup ## test the adapters with the frameworks' packages, in environments of their own (NAME=crewai)
	@$(PY) -m tools.frameworks test $(NAME)

.PHONY: test-crash
test-crash: setup ## run only the tests that kill servers
	$(PY) -m pytest -q -m crash $(ARGS)

.PHONY: test-s3
test-s3: setup ## run the contract of the blob stores against moto, in an environment of its own
	@tools/setup.sh .venv-s3 requirements/s3.txt
	@$(PY) -m tools.other_s3 .venv-s3 $(ARGS)

.PHONY: test-deploy
test-deploy: setup ## run the checks of the deployments, with tools that are built for it
	@tools/setup.sh .venv-deploy requirements/deploy.txt
	@tools/deployment_tools.sh .venv-deploy
	$(PY) -m pytest -q tests/deployment $(ARGS)

.PHONY: kills-many
kills-many: setup ## kill servers that share a journal in PostgreSQL (TUSKPOINT_KILLS=100)
	$(PY) -m pytest -q -s -m crash tests/many $(ARGS)

.PHONY: models
models: setup ## run models of the journal, and runs that are killed, on each database (EXAMPLES=100)
	TUSKPOINT_EXAMPLES=$(or $(EXAMPLES),100) \
	    $(PY) -m pytest -q -k 'model or obligations' --timeout 3600 tests/contract $(ARGS)

.PHONY: simulate
simulate: setup ## run simulated schedules of faults and crashes (SEED=1 SCHEDULES=2000)
	@$(PY) -m tests.simulation --seed $(or $(SEED),1) --schedules $(or $(SCHEDULES),2000)

.PHONY: fuzz
fuzz: setup ## fuzz the parsers of stored and received bytes (FUZZ_SECONDS=60 for each TARGET=name; INPUT=file replays one)
	@tools/setup.sh .venv-fuzz requirements/fuzz.txt clients/python server emulators || { \
	    echo "error: no fuzzer here: atheris has builds for Python 3.11 to 3.14 on Linux with x86-64, and this is $$($(PY) -V)" >&2; \
	    exit 1; }
	@.venv-fuzz/bin/python -m tests.fuzz --seconds $(or $(FUZZ_SECONDS),60) \
	    $(if $(TARGET),--target $(TARGET)) $(if $(INPUT),--input $(INPUT))

.PHONY: soak
soak: soak-calls soak-agents soak-crashes soak-effects soak-idle ## all that takes hours: the next five

.PHONY: soak-calls
soak-calls: setup ## send 100,000 generated calls (CALLS=100000)
	@TUSKPOINT_FUZZ_CALLS=$(or $(CALLS),100000) $(PY) -m pytest -q --timeout 7200 tests/integration/api/test_fuzz.py

.PHONY: soak-agents
soak-agents: setup ## let 1,000 agents work while disk, network, clock and blob store fail (AGENTS=1000 MINUTES=20 PAUSE=10 SEED=...)
	@$(PY) -m tests.soak --agents $(or $(AGENTS),1000) --minutes $(or $(MINUTES),20) \
	    --pause $(or $(PAUSE),10) $(if $(SEED),--seed $(SEED))

.PHONY: soak-crashes
soak-crashes: setup ## run the crash and slow tests in a loop (ROUNDS=20)
	@for round in $$(seq 1 $(or $(ROUNDS),20)); do \
	    echo "round $$round"; \
	    TUSKPOINT_KILLS=40 TUSKPOINT_SIMULATION_SCHEDULES=600 \
	        $(PY) -m pytest -q -m 'crash or slow' $(ARGS); \
	done

.PHONY: soak-effects
soak-effects: setup ## kill agents that do effects, on each database, and then servers too (KILLS=1000)
	TUSKPOINT_EFFECT_KILLS=$(or $(KILLS),1000) TUSKPOINT_EFFECT_FLEET=1 \
	    $(PY) -m pytest -q -s tests/crash/effects $(ARGS)

.PHONY: soak-idle
soak-idle: setup node-modules ## let an idle client of each language ping for five minutes (IDLE_SECONDS=300)
	TUSKPOINT_IDLE_SECONDS=$(or $(IDLE_SECONDS),300) $(PY) -m pytest -q tests/interop/scenarios/test_idle_clients.py

.PHONY: test-newest
test-newest: setup ## run the tests with the newest releases that the requirements allow
	@tools/test_resolution.sh highest .venv-newest $(IN_WORKERS) $(ARGS)

.PHONY: test-lowest
test-lowest: setup ## run the tests with the oldest releases that the requirements allow
	@tools/test_resolution.sh lowest-direct .venv-lowest $(IN_WORKERS) $(ARGS)

.PHONY: coverage
coverage: setup ## run the tests and list the lines that they miss
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

.PHONY: lint
lint: setup node-modules ## run every check that is not a test
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports --no-logo
	$(PY) -m tools.contract lint
	$(PY) -m tools.contract breaking
	@$(MAKE) check-generated typecheck
	$(PY) -m tools.sync_source check

.PHONY: typecheck
typecheck: env ## check the types
	$(BIN)/mypy $(CODE)

.PHONY: format
format: env ## format the code and apply automatic fixes
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

# --- the contract ---------------------------------------------------------------------------------

.PHONY: generate
generate: setup node-modules ## write the stubs of proto/ in every language whose tools are installed, and docs/errors.md
	$(PY) -m tools.contract generate
	$(PY) -m tools.error_page

.PHONY: sync
sync: env ## generate the Python client's blocking code from its async code
	$(PY) -m tools.sync_source generate

.PHONY: check-generated
check-generated: setup node-modules ## fail if the committed stubs or docs/errors.md are not what proto/ generates
	$(PY) -m tools.contract check
	$(PY) -m tools.error_page check

.PHONY: proto-image
proto-image: env ## make the current contract the one that `buf breaking` compares with
	$(PY) -m tools.contract image

# --- clients in other languages -------------------------------------------------------------------

.PHONY: clients
clients: client-typescript client-go interop ## build and test the clients in TypeScript and Go, then all clients together

.PHONY: client-typescript
client-typescript: env
	@tools/node_modules.sh --required clients/typescript
	cd clients/typescript && npm run --silent check && npm run --silent build -- --noCheck && npm run --silent test

# Go's cache of results does not depend on the server; -count=1 makes Go run the tests.
.PHONY: client-go
client-go: env
	cd clients/go && test -z "$$(gofmt -l .)" || { echo "run gofmt -w in clients/go"; exit 1; }
	cd clients/go && go vet ./... && go test -count=1 ./...

.PHONY: client-java
client-java: setup ## generate, compile and run the example in Java (needs Maven and a JDK)
	@$(PY) -m tools.other_languages java

.PHONY: client-rust
client-rust: setup ## generate, compile and run the example in Rust (needs cargo)
	@$(PY) -m tools.other_languages rust

.PHONY: interop
interop: setup
	$(PY) -m pytest -q -m interop $(ARGS)

# For `make test`: without Node or Go it prints a line that names the skipped tests.
.PHONY: clients-here
clients-here: env
	@status=0; tools/node_modules.sh clients/typescript || status=$$?; \
	case $$status in 0) $(MAKE) client-typescript ;; 3) ;; *) exit $$status ;; esac
	@if command -v go >/dev/null; then $(MAKE) client-go; \
	else echo "skipped: the client in Go, because go is not on PATH"; fi

.PHONY: node-modules
node-modules:
	@tools/node_modules.sh clients/typescript || test $$? = 3

# --- the console ----------------------------------------------------------------------------------

.PHONY: console
console: ## check and test the console's code, and build it into the server's package (needs Node)
	@tools/node_modules.sh --required console
	cd console && npm run --silent check && npm run --silent test && npm run --silent build

# Without its checks, and only if a source is newer than the built console.
$(CONSOLE): $(shell find console clients/typescript/src/gen -name node_modules -prune -o -name tests -prune -o -type f -print)
	@tools/node_modules.sh --required console
	cd console && npm run --silent build

# For `make test`: without Node it prints a line, and the tests of the console say that it is not built.
.PHONY: console-here
console-here:
	@status=0; tools/node_modules.sh console || status=$$?; \
	case $$status in 0) $(MAKE) console ;; 3) ;; *) exit $$status ;; esac

.PHONY: test-console
test-console: env console ## test the console in a browser (needs Chromium)
	$(PY) -m pytest -q tests/console $(ARGS)

.PHONY: console-pictures
console-pictures: env console ## renew the pictures of the console in README and docs, from the console's demo
	TUSKPOINT_PICTURES=docs/console $(PY) -m pytest -q tests/console/pages/test_pictures.py -k its_picture $(ARGS)

# --- measuring ------------------------------------------------------------------------------------

.PHONY: bench
bench: env ## measure, side by side with other checkpointers (ARGS='--quick', ARGS='steps graphs')
	@$(PY) -m bench $(ARGS)

.PHONY: evidence
evidence: env ## measure, and write the results and the pictures into docs/ (half an hour)
	@$(PY) -m bench.evidence $(ARGS)

# --- pages ----------------------------------------------------------------------------------------

.PHONY: docs
docs: env ## build the pages, and references of the Python client and the contract, as a site in build/site
	@tools/setup.sh .venv-docs requirements/docs.txt
	@$(PY) -m tools.pages .venv-docs

.PHONY: check-docs
check-docs: env ## check all that `make docs` reads, without the HTML
	@tools/setup.sh .venv-docs requirements/docs.txt
	@$(PY) -m tools.pages .venv-docs check

# --- releasing ------------------------------------------------------------------------------------

.PHONY: dist
dist: setup node-modules console ## build the distributions and the npm package into dist/, check them and try each in a fresh environment
	@tools/setup.sh .venv-dist requirements/dist.txt
	@$(PY) -m tools.packages .venv-dist/bin/twine

.PHONY: audit-dependencies
audit-dependencies: setup ## look the locked dependencies up in the public lists of vulnerabilities, over the network
	@tools/setup.sh .venv-audit requirements/audit.txt
	@tools/audit_dependencies.sh .venv-audit/bin/pip-audit

.PHONY: sbom
sbom: setup ## write what server and clients are made of into build/sbom, as CycloneDX
	@tools/setup.sh .venv-audit requirements/audit.txt
	@$(PY) -m tools.sbom .venv-audit/bin/cyclonedx-py

.PHONY: clean
clean: ## remove environments, caches and build output
	rm -rf .venv .venv-* build dist
	rm -rf clients/typescript/node_modules clients/typescript/dist clients/typescript/build
	rm -rf console/node_modules server/src/tuskpoint_server/api/web/assets
	rm -rf .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(wildcard server clients emulators bench examples tools tests) -name __pycache__ -type d -prune -exec rm -rf {} +
