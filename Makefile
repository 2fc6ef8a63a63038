# The verbs of Corelane. `make help` lists them; CI calls the same ones.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of processes: each reads the modules that an earlier one compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: $(shell grep -oE "^[a-z0-9-]+:" $(firstword $(MAKEFILE_LIST)) | tr -d :)

help: ## List what make can do
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  \033[1m%-15s\033[0m %s\n", $$1, $$2 }'

$(VENV)/.installed: pyproject.toml constraints/cpu.txt constraints/models.txt deploy/install.sh
	deploy/install.sh $(VENV) all $(PYTHON)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	deploy/install.sh $(VENV) dev $(PYTHON)
	@touch $@

install: $(VENV)/.installed ## Set up .venv with everything needed to run

demo: install ## Set up everything and answer examples/questions.jsonl
	@$(BIN)/python examples/demo.py

serve: install ## Run the whole service on this machine until Ctrl-C
	@$(BIN)/corelane serve

# Long runs (benchmarks, the console in a browser, chaos, failovers, architectures, hosts, cores that come and go, an even
# load, made-up requests, Neuron's stand-in in real processes, pods, Prometheus beside a service, upgrades): short forms.
LONG_RUNS := $(addprefix tests/,benchmarks browser chaos failover families hosts scaling soak \
	plugins/backends/neuron/test_targets.py deploy/test_pods.py monitoring/test_recorded.py upgrade/test_upgrade.py \
	$(patsubst %,integration/test_%.py,fuzz inf1 metrics monitoring neuron))

# Folders with tests that talk to a Redis; `--redis` chooses these: tests/conftest.py.
REDIS_TESTS := $(addprefix tests/,corelane plugins redis_servers)

# Failed tests run again, alone, at the end: tests/again.py. How many workers `auto` is: tests/conftest.py.
WORKERS ?= auto
SUITE := $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder -p tests.again

test: $(VENV)/.installed-dev ## Run the test suite
	$(SUITE) $(addprefix --ignore=,$(LONG_RUNS))

test-fast: $(VENV)/.installed-dev ## Run the tests that start no process and compile nothing
	$(SUITE) --fast $(addprefix --ignore=,$(LONG_RUNS))

test-newest: $(VENV)/.installed-dev ## Run `make test-fast` with the newest packages that pyproject.toml allows; say whose a failure is
	@$(BIN)/python deploy/newest.py .venv-newest -n $(WORKERS) --no-loadscope-reorder --fast \
		$(addprefix --ignore=,$(LONG_RUNS) tests/corelane/test_constraints.py)   # which is about the pinned set

test-long-runs: $(VENV)/.installed-dev ## Run the short form of each long run: benchmarks, browser, chaos, failovers, families, hosts, Neuron
	$(SUITE) --families $(LONG_RUNS)

families: $(VENV)/.installed-dev ## Try every architecture that answers questions, rare ones too
	$(BIN)/python -m pytest -n 2 tests/families --families

models-table: $(VENV)/.installed-dev ## Write the tables of docs/models.md; MEASURE=1 tries the popular models again
	$(BIN)/python -m tests.families.table $(if $(MEASURE),--measure)

chromium: ## Install Debian's chromium for the tests of the console, if it is missing and this user may
	@command -v chromium >/dev/null || deploy/debian.sh chromium "the tests of the console"

nginx: ## Install Debian's nginx for the tests of docs/keys.md and docs/deploy.md, if it is missing and this user may
	@PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || deploy/debian.sh nginx "the tests of nginx in front"

typescript: ## Get what checks the OpenAPI document, and what examples/typescript needs, from npm, which Debian has
	@command -v npm >/dev/null || deploy/debian.sh npm "the tests of a client in TypeScript"
	@cd tests/typescript && npm install --install-links --silent --no-package-lock --no-audit --no-fund || \
		echo "no tools of TypeScript: the tests of a client in it are skipped" >&2

prometheus: $(VENV)/.installed-dev ## Get Debian's Prometheus for the tests of alerts and boards
	@$(BIN)/python -m tests.monitoring.prometheus

test-acl: $(VENV)/.installed-dev ## Run the test suite as a user of Redis with the rights of `deploy/redis/users.acl`
	REDIS_TEST_ACL=1 $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder

# What runs a model or compiles one. How a folder is read or refused is alike on every CPU.
ALIKE := damage foreign_code forms model pieces publish source
CPU_TESTS := $(filter-out $(ALIKE:%=tests/compile/test_%.py),$(wildcard $(addsuffix /test_*.py,tests/compile tests/tasks \
	tests/plugins/backends))) $(patsubst %,tests/corelane/test_%.py,cpu_kinds instructions runner)
CPU_KINDS ?= avx2 avx2_vnni avx512 avx512_vnni avx512_bf16 amx

test-cpus: $(VENV)/.installed-dev ## Run the tests of engines, compilers and tasks as on each kind of CPU that this one exceeds; CPU_KINDS=avx2
	@for kind in $(CPU_KINDS); do $(SUITE) -q --cpu-kind $$kind $(CPU_TESTS) || exit; done

redis-servers: $(VENV)/.installed-dev ## Get Debian's Redis 7, Redis 8 and Valkey 8 for the tests
	@$(BIN)/python -m tests.redis_servers.debian

test-servers: redis-servers ## Run the tests that talk to Redis on each of these servers, or on those in SERVERS
	@servers=$$($(BIN)/python -m tests.redis_servers.debian $(or $(SERVERS),redis-7.0 redis-8.0 valkey-8.1)) || exit; \
	for server in $$servers; do echo "$$server"; \
		REDIS_TEST_SERVER=$$server REDIS_TEST_ACL=1 $(SUITE) -q --redis $(REDIS_TESTS) || exit; done

kubernetes: $(VENV)/.installed-dev ## Get what renders and checks the manifests for Kubernetes
	@$(BIN)/python -m tests.deploy.kubernetes_tools

test-kubernetes: kubernetes ## Render every overlay for Kubernetes and check it
	$(BIN)/python -m pytest tests/deploy/test_kubernetes.py

check: $(VENV)/.installed-dev ## Lint, types, import contracts, the Lua library
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.lint_lua
	$(BIN)/python -m tests.house
	$(BIN)/python -m tests.names

house: $(VENV)/.installed-dev ## Measure the house: how large it is, what its users meet, what imports what
	@$(BIN)/python -m tests.house; $(BIN)/python -m tests.names | tail -n 1

docs: $(VENV)/.installed-dev ## Write docs/reference.md and docs/openapi.json from the code
	$(BIN)/python -m docs.generate

bench-queue: install ## Measure the queue plane alone, over HTTP; BEFORE=CHECKOUT measures another state in turn
	@$(BIN)/python benchmarks/queue_plane.py $(if $(BEFORE),--before $(BEFORE))

bench-page: install ## Write docs/performance.md: Corelane beside its peers, on this commit and machine
	@benchmarks/peers/install.sh $(PYTHON)
	@$(BIN)/python benchmarks/page.py --out docs/performance.md $(PAGE)

chaos: $(VENV)/.installed-dev ## Break all that can break of a running service for half an hour, then audit; CHAOS="--seed 7 --chaos-model"
	$(BIN)/python -m pytest tests/chaos --rounds 5 --faults 210 $(CHAOS)

failover: redis-servers ## Promote a replica of Redis under load ten times, with and without CORELANE_REPLICAS_ACK, then audit
	$(BIN)/python -m pytest tests/failover --rounds 10 -o timeout=3600

namespaces: $(VENV)/.installed-dev ## Say loudly where the tests of several hosts cannot run
	@$(BIN)/python -m tests.hosts.network

hosts: namespaces ## Cut a host off and heal it, five times, with a fleet on hosts of its own; HOSTS="--rounds 20"
	$(BIN)/python -m pytest tests/hosts --rounds 5 --chaos-model $(HOSTS)

s3: $(VENV)/.installed-dev ## Test storage and references against a real S3 server, and kill the keeper while it reads, fifty times
	$(BIN)/python -m pytest tests/contracts/test_file_storage.py tests/workers/test_stored_items.py \
		tests/plugins/files/test_references.py tests/plugins/files/test_by_reference.py --rounds 50 -o timeout=1800

scale: $(VENV)/.installed-dev ## Take two cores away under load and bring them back, fifty times, then audit; SCALE="--seed 7"
	$(BIN)/python -m pytest tests/scaling --rounds 50 $(SCALE)

soak: $(VENV)/.installed-dev ## Hold an even load for two hours while models come and go: nothing may grow; SOAK="--hours 8"
	$(BIN)/python -m pytest tests/soak --hours 2 $(SOAK)

trip: $(VENV)/.installed-dev ## Print which functions one question enters, from the socket to its webhook, and their lines
	$(BIN)/python -m pytest -s tests/integration/test_trip.py

hashes: $(VENV)/.installed-dev ## Write digests of the packages that are new in constraints/cpu.txt
	$(BIN)/python deploy/hashes.py

audit: ## Look for known vulnerabilities of the pinned packages
	@deploy/audit.sh .venv-audit

sbom: $(VENV)/.installed ## Write a bill of materials to sbom.cdx.json; EXTRA=compile,remote for these extras
	@$(BIN)/python deploy/sbom.py --extra $(or $(EXTRA),all) sbom.cdx.json

DIST ?= dist

client: $(VENV)/.installed ## Build the Python client alone into dist/: an sdist, and the wheel that pip makes of the sdist
	@rm -rf $(DIST)/corelane_client-*; work=$$(mktemp -d); trap 'rm -rf $$work' EXIT; cp -rL deploy/client/. $$work && \
		cd $$work && $(abspath $(BIN))/python -W ignore -c "from setuptools import build_meta; \
		build_meta.build_sdist('$(abspath $(DIST))')" >/dev/null
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(DIST) $(DIST)/corelane_client-*.tar.gz
	@ls $(DIST)/corelane_client-*

IMAGE ?= corelane
REVISION = $(shell git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null || echo unknown)

image: ## Build the image, labelled with version and revision; IMAGE=NAME:TAG IMAGE_OPTIONS=...
	docker build --build-context wheels=$(or $(CORELANE_WHEELS),deploy/wheels) --build-arg REVISION=$(REVISION) \
		$(foreach name,PYTHON_IMAGE HASHES,$(if $($(name)),--build-arg $(name)=$($(name)))) $(IMAGE_OPTIONS) --tag $(IMAGE) .

release: $(VENV)/.installed-dev client ## Write to dist/ what is published beside the image: its id and digest, bill of materials, SHA256SUMS
	@$(BIN)/python deploy/release.py --image $(IMAGE) dist

compose-lab: $(VENV)/.installed-dev ## Run the compose file in a real Docker engine: up, kill each container, monitoring, down
	@$(BIN)/python -m tests.lab.compose

clean: ## Remove what was installed, compiled and stored here
	rm -rf $(VENV) .venv-audit .venv-newest sbom.cdx.json .corelane build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
