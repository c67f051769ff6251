# Everything starts from a fresh clone: each target makes what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Runs a module of tools/, tests/checks or tests/bench.
RUN := PYTHONPATH=tests:. $(BIN)/python -m
# Compiling a module when it is first imported, and not all of them now, halves the wait.
INSTALL := pip --quiet --disable-pip-version-check install --no-compile
# In parallel, a file at a time: halves the run on two cores.
PYTEST_ARGS ?= -n auto --dist loadfile
TESTS ?= tests

# Deployment: PARAMS replaces the parameters of samconfig.toml, all of them. The layer is built for ARCH, with the Python that Lambda runs.
ARCH ?= arm64
HOST_ARCH := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)
PYTHON313 ?= $(shell for python in python3.13 $$(pyenv root 2>/dev/null)/versions/3.13.*/bin/python3.13; do \
  $$python -c "" 2>/dev/null && command -v $$python && break; done)
SAM_VENV ?= .venv-sam
SAM ?= $(or $(shell command -v sam),$(SAM_VENV)/bin/sam)
SCAN_VENV ?= .venv-scan
SITE_VENV ?= .venv-site
BUILD ?= .aws-sam/build
ENV ?= default
PARAMS ?=
export SAM_CLI_TELEMETRY = 0

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.cli ## See it work: load a sample handbook, search it, validate a good and a corrupted chunk, run a suite
	@$(BIN)/chunkproof demo

.PHONY: audit-demo
audit-demo: $(VENV)/.dev ## Plant one fault of each kind in the sample handbook and audit it, text and vectors (REPORT=audit-demo.html)
	@$(RUN) checks.audit_demo --report $(or $(REPORT),audit-demo.html)

.PHONY: test
test: $(VENV)/.dev ## Run the tests, a real Qdrant server included
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(TESTS)

.PHONY: check
check: lint ## Everything that must hold before a change is merged
	$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS) $(TESTS)
	$(BIN)/python -m coverage report --include='shared/*' --fail-under=90 >/dev/null

.PHONY: lint
lint: $(VENV)/.dev ## Style, types, module boundaries
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: suite-oracle
suite-oracle: $(VENV)/.dev ## Our retrieval metrics beside trec_eval's, on a BEIR folder of 1,000 documents (about a minute)
	@$(RUN) checks.suite_oracle

.PHONY: audit
audit: $(VENV)/.dev ## Look up every pinned package for known vulnerabilities (MAY_BE_OFFLINE=1 only warns when it cannot)
	@$(RUN) checks.audit_dependencies $(if $(MAY_BE_OFFLINE),--may-be-offline)

.PHONY: audit-template
audit-template: $(VENV)/.dev $(SCAN_VENV)/bin/checkov ## Scan the stacks that template.yaml makes, with checkov
	@$(RUN) checks.audit_template --checkov $(SCAN_VENV)/bin/checkov

.PHONY: format
format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: build
build: python313 $(VENV)/.dev $(SAM) ## Build functions and layer for Lambda (ARCH=arm64 or x86_64)
	ARCHITECTURE=$(ARCH) PYTHON313=$(PYTHON313) $(SAM) build --build-dir $(BUILD) \
	  --parameter-overrides Architecture=$(ARCH) QdrantUrl=http://built
	@$(RUN) tools.release --stamp $(BUILD)/template.yaml --architecture $(ARCH) \
	  --parameters '$(PARAMS)' >/dev/null
	@du -sm $(BUILD)/*/ | awk '{printf "  %4d MB  %s\n", $$1, $$2}'

.PHONY: invoke
invoke: $(VENV)/.dev ## Run every sample event in a Lambda container, against a real Qdrant server and the local model
	@$(MAKE) --no-print-directory build ARCH=$(HOST_ARCH) BUILD=.aws-sam/local >&2
	@$(RUN) checks.invoke --sam $(SAM) --template .aws-sam/local/template.yaml

.PHONY: test-sam
test-sam: $(VENV)/.dev $(SAM) ## Test the build of `make invoke` behind sam local start-api
	CHUNKPROOF_SAM=$(abspath $(SAM)) $(BIN)/python -m pytest tests/e2e/test_sam_local.py

.PHONY: rehearse
rehearse: python313 $(VENV)/.dev $(SAM) ## Deploy, ask and delete as the README says, against an AWS account made up on this machine
	CHUNKPROOF_SAM=$(abspath $(SAM)) PYTHON313=$(PYTHON313) $(BIN)/python -m pytest tests/e2e/test_deploying.py

.PHONY: test-built
test-built: python313 ## The tests of what runs in Lambda, on the layer as `make invoke` builds it and on Lambda's Python
	@$(MAKE) --no-print-directory build ARCH=$(HOST_ARCH) BUILD=.aws-sam/local >&2
	@$(MAKE) --no-print-directory .venv-3.13/.dev PYTHON=$(PYTHON313) VENV=.venv-3.13
	CHUNKPROOF_LAYER=$(CURDIR)/.aws-sam/local/SharedLayer/python PYTHONPATH=$(CURDIR)/.aws-sam/local/SharedLayer/python \
	  .venv-3.13/bin/python -m pytest $(PYTEST_ARGS) tests/unit tests/integration

.PHONY: faults
faults: $(VENV)/.dev ## Break Qdrant and Cohere in every way, and show what a caller gets and how soon
	@$(RUN) checks.faults

.PHONY: load
load: $(VENV)/.dev ## Many clients at once while the Qdrant server is killed and restarted (LOAD=seconds)
	@$(RUN) checks.load --seconds $(or $(LOAD),15)

.PHONY: bench-audit
bench-audit: $(VENV)/.dev ## An audit beside the SDK on one server: speed, memory, every planted fault (CHUNKS=100000, MEMORY=100000)
	@$(RUN) bench.audit --chunks $(or $(CHUNKS),100000) --memory $(or $(MEMORY),100000)

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Odd requests by the thousand: no 500, every answer as documented (FUZZ=2000 of each kind)
	@$(RUN) checks.fuzz --examples $(or $(FUZZ),2000)

.PHONY: bench
bench: python313 $(VENV)/.dev $(SAM) ## Side by side with plain handlers and other libraries: cold, warm, size (QUICK=1, PARTS=cold,warm, JSON=FILE)
	@$(MAKE) --no-print-directory build ARCH=$(HOST_ARCH) BUILD=.aws-sam/bench/chunkproof >&2
	@$(RUN) bench.compare --build .aws-sam/bench/chunkproof --python $(PYTHON313) --sam $(SAM) \
	  $(if $(QUICK),--quick) $(if $(PARTS),--parts $(PARTS)) $(if $(JSON),--json $(JSON))

.PHONY: bench-telemetry
bench-telemetry: $(VENV)/.dev ## What telling logs and metrics of a request costs, and what tracing costs at start-up
	@$(RUN) bench.telemetry_cost
	@$(RUN) bench.tracing_start

.PHONY: package
package: build ## Layer, functions, state machines, templates and OpenAPI file into dist/, for Terraform and CDK
	@$(RUN) tools.package --build $(BUILD) --architecture $(ARCH)

.PHONY: secret
secret: $(VENV)/.cli ## Store the keys in Secrets Manager (asks for them, or reads JSON from standard input)
	@$(BIN)/chunkproof secret --name $(or $(NAME),chunkproof-keys)

.PHONY: deploy
deploy: build ## Deploy with the parameters of samconfig.toml (ENV=default)
	$(SAM) deploy --template-file $(BUILD)/template.yaml --config-file $(CURDIR)/samconfig.toml --config-env $(ENV) \
	  $(if $(PARAMS),--parameter-overrides $(PARAMS))

.PHONY: python313
python313:
	@test -n "$(PYTHON313)" || { echo "Lambda runs Python 3.13, and the layer is compiled with it: install it \
	(pyenv install 3.13, or uv python install 3.13), or name it: make PYTHON313=/path/to/python3.13 build" >&2; exit 1; }

.PHONY: check-3.13
check-3.13: python313 ## The same checks on the Python that Lambda runs
	$(MAKE) check PYTHON=$(PYTHON313) VENV=.venv-3.13

.PHONY: docs
docs: $(VENV)/.dev ## Write the generated pages of docs/ anew
	$(RUN) tools.pages

.PHONY: site
site: $(SITE_VENV)/bin/mkdocs ## Build the documentation as a searchable site, into site/
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --strict --quiet

.PHONY: dashboard
dashboard: $(VENV)/.dev ## Draw the CloudWatch dashboard's layout from the template, into docs/dashboard.svg
	@$(RUN) tools.dashboard

.PHONY: lock
lock: $(VENV)/.dev ## Pin the dependencies anew from pyproject.toml
	$(RUN) tools.pins

.PHONY: clean
clean: ## Remove everything that was made here
	@test ! -d .aws-sam || chmod -R u+w .aws-sam # what `make bench` unpacks is read-only
	rm -rf $(VENV) .venv-* .aws-sam dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Chunkproof needs Python 3.11 or later; name one: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Making $(VENV) (once)" >&2
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.cli: $(VENV)/pyvenv.cfg cli/requirements.txt pyproject.toml
	@echo "Installing what the command needs (once, about a minute)" >&2
	@$(BIN)/python -m $(INSTALL) --no-deps --require-hashes -r cli/requirements.txt
	@$(BIN)/python -m $(INSTALL) --no-deps -e .
	@touch $@

$(SAM_VENV)/bin/sam: tests/requirements-sam.txt
$(SCAN_VENV)/bin/checkov: tests/requirements-scan.txt
$(SITE_VENV)/bin/mkdocs: tests/requirements-site.txt
$(SAM_VENV)/bin/sam $(SCAN_VENV)/bin/checkov $(SITE_VENV)/bin/mkdocs:
	@echo "Installing $(@F) into $(@D:/bin=) (once, about a minute)" >&2
	@$(PYTHON) -m venv $(@D:/bin=)
	@$(@D)/python -m $(INSTALL) --no-deps --require-hashes -r $<
	@touch $@

$(VENV)/.dev: $(VENV)/pyvenv.cfg tests/requirements.txt pyproject.toml
	@echo "Installing what the tests need (once, about a minute)" >&2
	@$(BIN)/python -m $(INSTALL) --no-deps --require-hashes -r tests/requirements.txt
	@$(BIN)/python -m $(INSTALL) --no-deps -e .
	@touch $@ $(VENV)/.cli
