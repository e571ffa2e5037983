# fastfill: `make up` shows the fast path in the lab, `make test` runs everything that CI runs.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
PORT ?= 30000
MODEL ?= dense
PROFILE ?= long-context
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: help
help: ## Say what can be made.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The stamp is written last: an interrupted install is done again.
$(READY): requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: venv
venv: $(READY) ## Install the command line and the tests' tools into .venv.

.PHONY: up
up: $(READY) ## Start the lab server and prove that the fast path fires.
	@$(BIN)/fastfill lab up --port $(PORT) --model $(MODEL) --profile $(PROFILE)
	@$(BIN)/fastfill prove --url http://127.0.0.1:$(PORT)
	@printf '\n%s\n\n' 'Try it:'
	@printf '%s\n' "  curl -s http://127.0.0.1:$(PORT)/v1/completions -H 'Content-Type: application/json' \\" \
	  "    -d '{\"model\": \"lab\", \"prompt\": \"Why is the sky blue?\", \"max_tokens\": 8}'"

.PHONY: down
down: ## Stop the lab server.
	@if [ -x $(BIN)/fastfill ]; then $(BIN)/fastfill lab down --port $(PORT); fi

.PHONY: lint
lint: $(READY) ## Lint, types and format.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy launch/fastfill patches/sglang_fastfill
	$(BIN)/yamllint --strict .
	cd ansible && ../$(BIN)/ansible-lint --offline --profile production -q
	$(BIN)/python ansible/role_tables.py --check
	$(BIN)/fastfill pins render --check
	git ls-files -z -- '*.sh' .ci/run | xargs -0 -r $(BIN)/shellcheck
	git ls-files -z -- '*Dockerfile' | xargs -0 -r $(BIN)/hadolint
	$(BIN)/python tests/docker/compose_schema.py $$(git ls-files '*compose*.yaml')

# What depends on the release's own backend; the rest of tests/backend looks at our code alone.
BACKEND_0_5_23 := $(addprefix tests/backend/test_,conditions.py context.py invariants.py witness.py)

.PHONY: test
test: lint ## Lint, unit tests, the real backend, real lab servers, images and containers.
	$(BIN)/pytest tests/unit tests/patches
	$(BIN)/fastfill lab python --tests -- -m pytest tests/backend
	$(BIN)/fastfill lab python --stack sglang-0.5.23 --tests -- -m pytest $(BACKEND_0_5_23)
	$(BIN)/pytest tests/lab --durations=30 --durations-min=10
	$(BIN)/pytest tests/docker

.PHONY: test-docker
test-docker: $(READY) ## Images and containers on a real engine (root; Debian 12, or an engine in DOCKER_HOST).
	$(BIN)/pytest tests/docker

.PHONY: test-ansible
test-ansible: $(READY) ## Rollouts to three hosts with systemd, sshd and an engine each (root; as test-docker).
	$(BIN)/pytest tests/ansible

.PHONY: bench
bench: $(READY) ## Print what gate and witness add to a layer call.
	$(BIN)/fastfill lab python --tests -- bench/gate_overhead.py

.PHONY: lock
lock: ## Write the requirement locks again (needs uv).
	uv pip compile --universal --python-version 3.10 --quiet --generate-hashes --no-annotate --no-header \
	  requirements/dev.in --output-file requirements/dev.txt
	uv pip compile --universal --python-version 3.10 --quiet --generate-hashes --no-annotate --no-header \
	  pyproject.toml --constraints requirements/dev.txt --output-file requirements/serve.txt
	uv pip compile --universal --python-version 3.10 --quiet --generate-hashes --no-annotate --no-header \
	  pyproject.toml --extra bench --constraints requirements/dev.txt --output-file requirements/bench.txt
	$(PYTHON) requirements/differences.py requirements/serve.txt requirements/bench.txt
	for name in build aiter router; do uv pip compile --universal --python-version 3.10 --quiet --generate-hashes --no-annotate \
	  --no-header $$( [ $$name = aiter ] && echo --no-deps ) requirements/$$name.in --output-file requirements/$$name.txt; done

# Each release prefers the versions of lab.txt (it starts as a copy), and keeps what differs.
LAB_LOCK := uv pip compile --config-file requirements/lab.uv.toml -p 3.11 --python-platform x86_64-manylinux_2_34 \
  --no-emit-package torch --quiet --generate-hashes --no-annotate --no-header requirements/lab.in

.PHONY: lock-lab
lock-lab: ## Write the locks of the lab's SGLang releases again (needs uv).
	$(LAB_LOCK) --output-file requirements/lab.txt
	cp requirements/lab.txt requirements/lab-bench.txt
	$(LAB_LOCK) requirements/lab-bench.in --output-file requirements/lab-bench.txt
	$(PYTHON) requirements/differences.py requirements/lab.txt requirements/lab-bench.txt
	for wanted in requirements/lab-0.*.in; do lock=$${wanted%.in}.txt; cp requirements/lab.txt $$lock; \
	  $(LAB_LOCK) --override $$wanted --output-file $$lock; \
	  $(PYTHON) requirements/differences.py requirements/lab.txt $$lock; done

.PHONY: sweep
sweep: $(READY) ## Every SGLang release in the lab: predicted, seen and proven (half an hour).
	$(BIN)/python bench/sweep.py --out results/sweep.json

.PHONY: prove-all
prove-all: sweep ## What takes long or wants a GPU: writes the stamped files in results/.
	$(BIN)/fastfill lab python --tests -- bench/gate_overhead.py --out results/gate-overhead.json
	$(BIN)/fastfill lab python --stack sglang-0.5.23 --tests -- bench/gate_overhead.py --repeats 81 \
	  --out results/gate-overhead-0.5.23.json
	$(BIN)/pytest tests/browser
	$(BIN)/python bench/paired.py --out results/paired.json
	$(BIN)/python bench/plan_fidelity.py --out results/plan-fidelity-0.5.16.json
	$(BIN)/python bench/plan_fidelity.py --stack sglang-0.5.23 --out results/plan-fidelity-0.5.23.json
	$(BIN)/python bench/plan_clock.py --out results/plan-clock-0.5.16.json
	$(BIN)/python bench/plan_clock.py --stack sglang-0.5.23 --first 20 --out results/plan-clock-0.5.23.json
	$(BIN)/python bench/plan_speed.py --out results/plan-speed.json
	$(BIN)/python bench/saboteurs.py --out results/saboteurs.json
	$(BIN)/python bench/prove_false_alarms.py --out results/prove-false-alarms.json
	$(BIN)/python bench/fleet_200.py --out results/fleet-200.json
	@if $(PYTHON) -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then \
	  $(PYTHON) bench/quantize.py --out results/quantize-$$($(PYTHON) -c 'import torch; print(torch.cuda.get_device_name().lower().replace(" ", "-"))').json; \
	else echo 'no GPU here: results/quantize-*.json stay as they are'; fi
