# Everything needs only Python >= 3.11, make and a package index; each target sets up .venv itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test test-parts test-whole test-cluster test-real check bench cluster-up cluster-down clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fast,forensics]' --group dev
	@touch $@

demo: $(STAMP) ## see a wedge happen and be caught, then the same attack survived (about two minutes)
	$(BIN)/pdchaos demo

check: $(STAMP) ## lint, types, formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check ## all checks and all tests: those that compute beside those that wait for whole deployments
	$(MAKE) --no-print-directory -j3 --output-sync=target test-parts test-whole test-cluster

test-parts: $(STAMP) ## tests of the parts
	$(BIN)/pytest -m "not real and not e2e"

test-whole: $(STAMP) ## tests that start whole deployments and run pdchaos against them (e2e)
	$(BIN)/pytest -m e2e --ignore=tests/ssh --ignore=tests/testbed

test-cluster: $(STAMP) ## the same over SSH, on the test bed (root)
	$(BIN)/pytest -m e2e tests/ssh tests/testbed

# PYTEST passes arguments on. Dynamo where it can be installed, of SGLang what is; what PDCHAOS_REAL=dynamo,sglang@0.5.14,… names must be.
test-real: $(STAMP) ## tests against real engines (minutes; root, for Dynamo's network namespace)
	$(BIN)/pytest -m real tests/real $(PYTEST)

# BED passes arguments on: BED='--build nixl-abort-unhandled --prefill 1'.
cluster-up: $(STAMP) ## a small cluster on this machine to try pdchaos over SSH (root; openssh-server, nftables, iproute2)
	$(BIN)/python -m testbed up $(BED)

cluster-down: $(STAMP) ## end it
	$(BIN)/python -m testbed down

bench: $(STAMP) ## benchmarks (by hand; ratios, not times)
	$(BIN)/python -m bench

clean: ## remove the environment
	rm -rf $(VENV)
