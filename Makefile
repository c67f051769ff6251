# Everything starts from a fresh clone: each target makes what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Runs a module of tools/ or bench/; both use tests/support.
RUN := PYTHONPATH=tests:. $(BIN)/python -m
# Modules are compiled when they are first imported: compiling them all at installation doubles the wait.
INSTALL := pip --quiet --disable-pip-version-check install --no-compile
# One worker per core; the tests of a file stay in one worker.
PYTEST_ARGS ?= -n auto --dist loadfile
TESTS ?= tests
# On the layer, what takes long is left out if nothing in it depends on the layer, or if `make rehearse` does the same.
NOT_ON_LAYER := faults floods fuzz log_safety permissions retries store_failures store_legs edge_store snapshot \
  audit audit_large audit_content audit_repeated_ids audit_split audit_vectors audit_cloud suite_cloud suite_exact \
  suite_lint suite_starter published published_runs published_store receipt_oracle why why_fix why_oracle
BUILT_TESTS ?= tests/integration $(foreach name,$(NOT_ON_LAYER),--ignore=tests/integration/test_$(name).py)

# Deployment: PARAMS replaces all parameters of samconfig.toml. The layer is built for ARCH, with Lambda's Python.
ARCH ?= arm64
HOST_ARCH := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)
PYTHON313 ?= $(shell for python in python3.13 $$(pyenv root 2>/dev/null)/versions/3.13.*/bin/python3.13; do \
  $$python -c "" 2>/dev/null && command -v $$python && break; done)
SAM_VENV ?= .venv-sam
SAM ?= $(or $(shell command -v sam),$(SAM_VENV)/bin/sam)
SCAN_VENV ?= .venv-scan
SITE_VENV ?= .venv-site
STATES_VENV ?= .venv-states
FRAMEWORKS_VENV ?= .venv-frameworks
FRAMEWORKS := $(foreach name,langchain llamaindex haystack,$(FRAMEWORKS_VENV)/$(name)/.ready)
BUILD ?= .aws-sam/build
ENV ?= default
PARAMS ?=
export SAM_CLI_TELEMETRY = 0
export PARAMS

# The parts of `make bench` that compare builds of Chunkproof with other libraries, and those that need no build.
COMPARED := size,cold,secret,warm,by_id,growth,distance,serve,commands
ALONE := telemetry audit embedded seals
USUAL := $(COMPARED),seals
BENCH_PARTS = $(or $(PARTS),$(USUAL))
comma := ,
split = $(subst $(comma), ,$(1))
compared_parts = $(filter-out $(ALONE),$(call split,$(BENCH_PARTS)))
unknown_parts = $(filter-out $(ALONE) $(call split,$(COMPARED)),$(call split,$(BENCH_PARTS)))

.DEFAULT_GOAL := help

.PHONY: help
help:
	@awk -F ':.*## ' '/^##@ / {printf "%s%s\n", sep, substr($$0, 5); sep = "\n"} \
	  /^[a-z0-9.-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Start

.PHONY: demo
demo: $(VENV)/.cli ## Load a sample handbook, search it, validate a good and a corrupted chunk, run a suite
	@$(BIN)/chunkproof demo

.PHONY: audit-demo
audit-demo: $(VENV)/.dev ## Audit the sample handbook with one fault of each kind planted (REPORT=audit-demo.html)
	@$(RUN) tools.checks.audit_demo --report $(or $(REPORT),audit-demo.html)

.PHONY: diff-demo
diff-demo: $(VENV)/.dev ## Compare the sample handbook embedded by two models, with the sample suite (REPORT=diff.html)
	@$(RUN) tools.checks.diff_demo $(if $(REPORT),--report $(REPORT))

.PHONY: why-demo
why-demo: $(VENV)/.dev ## Plant five faults in the sample handbook and print why each question is lost
	@$(RUN) tools.checks.why_demo

.PHONY: walk
walk: $(VENV)/.dev ## Trace one warm search and one validation: the files and functions they cross, in order
	@$(RUN) tools.walk

.PHONY: house
house: $(VENV)/.dev ## Measure the size and shape of the product against its limits (LIST=1 names modules with one importer)
	@$(RUN) tools.house --walk $(if $(LIST),--list)

.PHONY: instructions
instructions: $(VENV)/.dev ## Count the instructions of a warm search and a validation with valgrind, against their limits
	@$(RUN) tools.instructions

##@ Test

.PHONY: test-unit
test-unit: $(VENV)/.dev ## Run the unit tests, in under a minute (HYPOTHESIS_PROFILE=thorough for ten times the examples)
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/unit

.PHONY: test
test: $(VENV)/.dev ## Run all tests, against a real Qdrant server too (TESTS=tests/unit/test_x.py for some)
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(TESTS)

.PHONY: lint
lint: $(VENV)/.dev ## Check style, types and import tiers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: check
check: lint ## Check everything that a change needs to be merged: lint, all tests, 95 % coverage of shared/chunkproof
	$(BIN)/python -m pytest --cov --cov-report= $(PYTEST_ARGS) $(TESTS)
	$(BIN)/python -m coverage report --include='shared/*' --fail-under=95 --skip-covered

.PHONY: check-3.13
check-3.13: python313 ## The same on the Python that Lambda runs
	$(MAKE) check PYTHON=$(PYTHON313) VENV=.venv-3.13

.PHONY: test-faults
test-faults: $(VENV)/.dev ## Break Qdrant and Cohere in every known way; print what a caller gets and how soon
	@$(RUN) tools.checks.faults

.PHONY: test-frameworks
test-frameworks: $(VENV)/.dev $(FRAMEWORKS) ## Test the retrievers and repairs that LangChain, LlamaIndex and Haystack themselves run
	TEST_RETRIEVER_ENVIRONMENTS=$(CURDIR)/$(FRAMEWORKS_VENV) $(BIN)/python -m pytest $(PYTEST_ARGS) \
	  tests/e2e/test_retriever_examples.py tests/e2e/test_why_fix_frameworks.py

.PHONY: test-load
test-load: $(VENV)/.dev ## Send requests from many clients while Qdrant is killed and restarted (LOAD=seconds)
	@$(RUN) tools.checks.load --seconds $(or $(LOAD),15)

.PHONY: test-fuzz
test-fuzz: $(VENV)/.dev ## Send thousands of odd requests: no 500, every response as documented (FUZZ=2000 of each kind)
	@$(RUN) tools.checks.fuzz --examples $(or $(FUZZ),2000)

.PHONY: test-states
test-states: python313 $(VENV)/.dev $(STATES_VENV)/.ready ## Take every path of both state machines in a second interpreter, and validate them (weekly)
	@$(RUN) tools.checks.state_machines --python $(STATES_VENV)/bin/python

.PHONY: attack
attack: $(VENV)/.dev ## Attack it with seeded generators and print what held (SECONDS=300, SEED=1, PARTS=floods,kills:200)
	@$(RUN) tools.checks.attack --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED)) \
	  $(if $(PARTS),--parts $(PARTS))

.PHONY: suite-oracle
suite-oracle: $(VENV)/.dev ## Compare our retrieval metrics with trec_eval's on 1,000 documents (about a minute)
	@$(RUN) tools.checks.suite_oracle

.PHONY: why-oracle
why-oracle: $(VENV)/.dev ## Plant faults in 1,000 chunks, singly and in pairs, and print which causes `why` names (EACH=10, PAIRS=3)
	@$(RUN) tools.checks.why_oracle --each $(or $(EACH),10) --pairs $(or $(PAIRS),3) $(if $(SEED),--seed $(SEED))

.PHONY: receipt-oracle
receipt-oracle: $(VENV)/.dev ## Tamper with 10,000 receipts in 37 ways and verify 10,000 honest ones, in Python and in node (COUNT=10000)
	@$(RUN) tools.checks.receipt_oracle --count $(or $(COUNT),10000) $(if $(SEED),--seed $(SEED))

.PHONY: bench-seals
bench-seals: $(VENV)/.dev ## Measure what integrity, receipts, seals and their verification cost (CHUNKS=5000, SYNTHETIC=1000000: only a seal)
	@$(RUN) bench.seals --chunks $(or $(CHUNKS),5000) $(if $(SYNTHETIC),--synthetic $(SYNTHETIC))

##@ Build and deploy

.PHONY: build
build: python313 $(VENV)/.dev $(SAM) ## Build functions and layer for Lambda (ARCH=arm64 or x86_64)
	@$(RUN) tools.release --check --architecture $(ARCH) --environment $(ENV) --parameters "$$PARAMS"
	@mkdir -p $(dir $(BUILD)); mkdir $(BUILD).lock 2>/dev/null || { echo "Another build writes to $(BUILD): wait for it, \
	name another folder with BUILD=, or remove $(BUILD).lock if no build runs" >&2; exit 1; }; \
	trap 'rmdir $(BUILD).lock' EXIT; \
	ARCHITECTURE=$(ARCH) PYTHON313=$(PYTHON313) $(SAM) build --build-dir $(BUILD) \
	  --parameter-overrides Architecture=$(ARCH) QdrantUrl=http://built && \
	$(RUN) tools.release --stamp $(BUILD)/template.yaml --architecture $(ARCH) --environment $(ENV) \
	  --parameters "$$PARAMS" >/dev/null
	@du -sm $(BUILD)/*/ | awk '{printf "  %4d MB  %s\n", $$1, $$2}'

.PHONY: invoke
invoke: $(VENV)/.dev ## Run every sample event in a Lambda container, against a real Qdrant server and the local model (STORE=edge: no server; EVENTS='search*')
	@$(MAKE) --no-print-directory build ARCH=$(HOST_ARCH) BUILD=.aws-sam/local >&2
	@$(RUN) tools.checks.invoke --sam $(SAM) --template .aws-sam/local/template.yaml --store $(or $(STORE),server) --events '$(or $(EVENTS),*)'

.PHONY: test-sam
test-sam: $(VENV)/.dev $(SAM) ## Test the commands of the README with `sam local`, and the build of `make invoke` behind its gateway
	CHUNKPROOF_SAM=$(abspath $(SAM)) $(BIN)/python -m pytest tests/e2e/test_sam_local.py

.PHONY: test-built
test-built: python313 ## Run integration tests on the built layer and Lambda's Python (BUILT_TESTS=tests/unit for others)
	@$(MAKE) --no-print-directory build ARCH=$(HOST_ARCH) BUILD=.aws-sam/local >&2
	@$(MAKE) --no-print-directory .venv-3.13/.dev PYTHON=$(PYTHON313) VENV=.venv-3.13
	CHUNKPROOF_LAYER=$(CURDIR)/.aws-sam/local/SharedLayer/python PYTHONPATH=$(CURDIR)/.aws-sam/local/SharedLayer/python \
	  .venv-3.13/bin/python -m pytest $(PYTEST_ARGS) $(BUILT_TESTS)

.PHONY: ci-tools
ci-tools: python313 $(SAM) $(SCAN_VENV)/bin/checkov $(FRAMEWORKS) ## Install what other targets need: the SAM CLI, checkov, frameworks, Python 3.13 with the tests
	@$(MAKE) --no-print-directory .venv-3.13/.dev PYTHON=$(PYTHON313) VENV=.venv-3.13

.PHONY: rehearse
rehearse: python313 $(VENV)/.dev $(SAM) ## Deploy, use and delete a stack as documented, against a simulated AWS account
	CHUNKPROOF_SAM=$(abspath $(SAM)) PYTHON313=$(PYTHON313) $(BIN)/python -m pytest tests/e2e/test_deploying.py

.PHONY: smoke
smoke: $(VENV)/.dev ## Try a deployed stack and print a table: alarm, cold start, gzip, rollback, audit, suite (STACK=name, STEPS=some)
	@$(RUN) tools.smoke --stack '$(STACK)' $(if $(STEPS),--steps $(STEPS))

.PHONY: package
package: build ## Put layer, functions, state machines, templates and OpenAPI file into dist/, for Terraform and CDK
	@$(RUN) tools.package --build $(BUILD) --architecture $(ARCH)

.PHONY: secret
secret: $(VENV)/.cli ## Store the API keys in Secrets Manager (prompts for them, or reads JSON from standard input)
	@$(BIN)/chunkproof secret --name $(or $(NAME),chunkproof-keys)

.PHONY: deploy
deploy: build ## Deploy with the parameters of samconfig.toml (ENV=default)
	live="$$($(RUN) tools.release --live --environment $(ENV))"; \
	$(SAM) deploy --template-file $(BUILD)/template.yaml --config-file $(CURDIR)/samconfig.toml --config-env $(ENV) \
	  $(if $(PARAMS),--parameter-overrides $(PARAMS)) && \
	$(RUN) tools.release --prune "$$live" --environment $(ENV)

.PHONY: python313
python313:
	@test -n "$(PYTHON313)" || { echo "Lambda runs Python 3.13, and the layer is compiled with it: install it \
	(pyenv install 3.13, or uv python install 3.13), or name it: make PYTHON313=/path/to/python3.13 build" >&2; exit 1; }

##@ Measure

.PHONY: bench
bench: $(VENV)/.dev ## Compare with plain handlers and other libraries (QUICK=1, JSON=FILE, PARTS=cold,warm,seals,audit,...)
	$(if $(unknown_parts),$(error PARTS: no part is called $(unknown_parts); the parts are $(COMPARED),$(subst $() ,$(comma),$(ALONE))))
	@$(if $(compared_parts),$(MAKE) --no-print-directory bench-compare PARTS=$(subst $() ,$(comma),$(compared_parts)))
	@$(if $(findstring telemetry,$(BENCH_PARTS)),$(RUN) bench.telemetry_cost && $(RUN) bench.tracing_start)
	@$(if $(findstring audit,$(BENCH_PARTS)),$(RUN) bench.audit --chunks $(or $(CHUNKS),100000) --memory $(or $(MEMORY),100000))
	@$(if $(findstring seals,$(BENCH_PARTS)),$(RUN) bench.seals --chunks $(or $(CHUNKS),$(if $(QUICK),5000,100000)))
	@$(if $(findstring embedded,$(BENCH_PARTS)),$(RUN) bench.embedded --chunks $(or $(CHUNKS),1000 10000 $(if $(QUICK),,100000)))

.PHONY: bench-compare
bench-compare: python313 $(VENV)/.dev $(SAM)
	@$(MAKE) --no-print-directory build ARCH=$(HOST_ARCH) BUILD=.aws-sam/bench/chunkproof >&2
	@$(RUN) bench.compare --build .aws-sam/bench/chunkproof --python $(PYTHON313) --sam $(SAM) --parts $(PARTS) \
	  $(if $(QUICK),--quick) $(if $(JSON),--json $(JSON))

##@ Maintain

.PHONY: format
format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(VENV)/.dev ## Regenerate the generated pages of docs/
	$(RUN) tools.pages

.PHONY: site
site: $(SITE_VENV)/bin/mkdocs ## Build the documentation as a searchable site, into site/
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --strict --quiet

.PHONY: golden
golden: $(VENV)/.dev ## Write the golden files of tests/data/golden again, after an intended change of an output
	CHUNKPROOF_GOLDEN=write $(BIN)/python -m pytest -q tests/e2e/test_golden.py

.PHONY: dashboard
dashboard: $(VENV)/.dev ## Draw the layout of the CloudWatch dashboard, into docs/dashboard.svg
	@$(RUN) tools.dashboard

.PHONY: console-pictures
console-pictures: $(VENV)/.dev ## Take the pictures of the console, into docs/ (ALL=folder for every view)
	@$(RUN) tools.console_pictures $(if $(ALL),--all $(ALL))

.PHONY: tutorial-pictures
tutorial-pictures: $(VENV)/.dev ## Run the commands of docs/tutorial.md and take the pictures of their reports, into docs/
	@$(RUN) tools.tutorial_pictures

.PHONY: console-figures
console-figures: $(VENV)/.dev ## Measure the console: first judged question, first result, 100 judgments, page weight
	@$(RUN) tools.console_pictures --figures

.PHONY: costs
costs: $(VENV)/.dev ## Print what a stack costs in a month (PARAMS="Suite=true", REQUESTS=100000), or a store (STORES=1, CHUNKS=100000)
	@$(if $(STORES),$(RUN) tools.store_costs $(if $(CHUNKS),--chunks $(CHUNKS)) $(if $(DIMENSION),--dimension $(DIMENSION)) \
	    $(if $(QDRANT_CLOUD_GB_HOUR),--qdrant-cloud-gb-hour $(QDRANT_CLOUD_GB_HOUR)),\
	  $(RUN) tools.costs --parameters "$$PARAMS" $(if $(REQUESTS),--requests $(REQUESTS)))

.PHONY: sizes
sizes: $(VENV)/.dev ## Install each extra into an empty virtualenv and print its size and time
	@$(RUN) tools.install_sizes

.PHONY: dist
dist: $(VENV)/.dev ## Build wheel and source distribution into dist/, the same bytes every time
	@$(RUN) tools.dist

.PHONY: lock
lock: $(VENV)/.dev ## Pin the dependencies again from pyproject.toml
	$(RUN) tools.pins

.PHONY: audit-deps
audit-deps: $(VENV)/.dev ## Look up every pinned package for known vulnerabilities (MAY_BE_OFFLINE=1: only warn when offline)
	@$(RUN) tools.checks.audit_dependencies $(if $(MAY_BE_OFFLINE),--may-be-offline)

.PHONY: audit-template
audit-template: $(VENV)/.dev $(SCAN_VENV)/bin/checkov ## Scan the stacks of template.yaml with checkov
	@$(RUN) tools.checks.audit_template --checkov $(SCAN_VENV)/bin/checkov

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
	@$(BIN)/python -m $(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(SAM_VENV)/bin/sam: tests/requirements-sam.txt
$(SCAN_VENV)/bin/checkov: tests/requirements-scan.txt
$(SITE_VENV)/bin/mkdocs: tests/requirements-site.txt
$(SAM_VENV)/bin/sam $(SCAN_VENV)/bin/checkov $(SITE_VENV)/bin/mkdocs:
	@echo "Installing $(@F) into $(@D:/bin=) (once, about a minute)" >&2
	@$(PYTHON) -m venv $(@D:/bin=)
	@$(@D)/python -m $(INSTALL) --no-deps --require-hashes -r $<
	@touch $@

$(FRAMEWORKS_VENV)/%/.ready: bench/contenders/%.txt cli/requirements.txt
	@echo "Installing $* into $(@D) (once, about a minute)" >&2
	@$(PYTHON313) -m venv $(@D)
	@for file in $^; do $(@D)/bin/python -m $(INSTALL) --no-deps --require-hashes -r $$file || exit 1; done
	@touch $@

$(STATES_VENV)/.ready: tools/checks/localstack.txt
	@echo "Installing LocalStack into $(STATES_VENV) (once, some minutes)" >&2
	@$(PYTHON313) -m venv $(STATES_VENV)
	@$(STATES_VENV)/bin/python -m $(INSTALL) --no-deps --require-hashes -r $<
	@touch $@

$(VENV)/.dev: $(VENV)/pyvenv.cfg tests/requirements.txt pyproject.toml
	@echo "Installing what the tests need (once, about a minute)" >&2
	@$(BIN)/python -m $(INSTALL) --no-deps --require-hashes -r tests/requirements.txt
	@$(BIN)/python -m $(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.cli
