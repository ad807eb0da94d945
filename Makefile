# `make` lists what can be made. Everything sets itself up: packages by apt, Python by pip, the engine by scripts/dev/setup-engine.
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo:  ## boot 2 nodes x 2 ranks on this machine and train: no container engine needed; ARGS='--kill worker-1@5s'
	@scripts/demo $(ARGS)

.PHONY: test
test:  ## for every change: lint, types, units, real sshd and mpirun, and of each kind of container test one or two
	@scripts/test

.PHONY: test-all
test-all:  ## every target that tests, one after the other, and one table (hours); ONLY="test-slurm smoke" SKIP=test-audit RESUME=1
	@scripts/test-all $(ONLY) $(addprefix --skip=,$(SKIP)) $(if $(RESUME),--resume)

.PHONY: test-image
test-image:  ## what `docker run` users may rely on, point by point, on both images: docs/reference/image-contract.md
	@scripts/build-image gpu && scripts/build-image ascend
	@scripts/test -m "" --table image --every tests/image --quiet

.PHONY: test-thorough
test-thorough:  ## more cases of what `make test` proves by one: other nodes, launchers, signals and orders on this machine (some minutes)
	@scripts/test -m thorough -n 4 --dist worksteal --torch-python=$$(scripts/dev/torch-python) --with=mpich=$$(scripts/dev/python-with mpich) tests/{process,loopback,security}

.PHONY: test-containers
test-containers:  ## real containers on their own: Kubernetes, ModelArts, plain torch, weak machines, the table of statuses (some minutes)
	@scripts/build-image mpi && scripts/build-image mpi trixie
	@scripts/test -m "not full" tests/compose

.PHONY: test-bake
test-bake:  ## the toolkit in images as others have them, by two lines of a Dockerfile: Debian 12 and 13, conda's Python, no Python, own Open MPI
	@scripts/test-bake

.PHONY: test-layouts
test-layouts:  ## the toolkit in images with a start of their own: NVIDIA's, HPC-X, docker-stacks, s6-overlay, tini, a vendor's script
	@scripts/test-layouts

.PHONY: test-apptainer
test-apptainer:  ## an image with the toolkit under Debian unstable's Apptainer: read-only, an ordinary user, one node and two on loopback addresses
	@scripts/test-apptainer

.PHONY: lint
lint:  ## ruff, mypy --strict, shellcheck, hadolint, and an audit that fails in CI if nobody can be asked
	@scripts/lint

.PHONY: test-audit
test-audit:  ## known vulnerabilities of the packages in scripts/image/toolkit.lock, by pip-audit; fails if nobody can be asked
	@$$(scripts/dev/venv test lint demo)/bin/python scripts/audit.py

.PHONY: smoke
smoke:  ## 3 containers of the real image train with Horovod and torch, and end together
	@scripts/build-image gpu && scripts/test -m "" tests/compose/test_smoke.py -s -v

.PHONY: test-engines
test-engines:  ## every engine in real containers, TensorFlow's and MindSpore's too (6 GB): version, containers, seconds, result
	@scripts/test-engines

.PHONY: test-launchers
test-launchers:  ## every launcher of tests/rows.py in real containers: trains, a process fails, SIGTERM; then the real ones on this machine
	@scripts/test-launchers

.PHONY: test-see
test-see:  ## what people look at: pages in a real browser, odd nodes named, a late worker's timeline, 1 GB of log (ten minutes)
	@scripts/test-see

.PHONY: screenshots
screenshots:  ## the pictures of our pages in docs/, by a real browser
	@scripts/test-see --screenshots docs/images

.PHONY: test-arm64
test-arm64:  ## the Ascend image for arm64, built and booted in two containers, emulated (some minutes)
	@scripts/build-image ascend arm64 && scripts/test tests/arm64 --durations=0

.PHONY: test-faults
test-faults:  ## every fault of docs/reference/faults.md in real containers, three times in a row: fault, bound, seconds, result
	@ROUNDS=$${ROUNDS:-3} scripts/test-faults

.PHONY: test-restarts
test-restarts:  ## a worker is killed while it trains, with a spare, under every launcher in real containers; then what else `restarts` promises
	@scripts/test-restarts

.PHONY: test-failures
test-failures:  ## how well failures are judged: precision and recall per cause and of retry, two baselines; then failures staged in real jobs (minutes)
	@$$(scripts/dev/venv test lint demo)/bin/python -m tests.failures.score
	@scripts/test -q tests/failures
	@scripts/dev/torch-python >/dev/null || scripts/build-image gpu
	@scripts/test -m "" --table staged --every -q --no-header "--torch-python=$$(scripts/dev/torch-python)" "--with=ray=$$(scripts/dev/python-with ray)" tests/loopback/test_staged_failures.py

.PHONY: test-stalls
test-stalls:  ## eight hangs staged in real jobs of two nodes, with py-spy and by a signal: the rank that the others wait for is named (ten minutes)
	@scripts/dev/torch-python >/dev/null || scripts/build-image gpu
	@scripts/test -m "" -q -s tests/stalls "--torch-python=$$(scripts/dev/torch-python)"

.PHONY: test-cpus
test-cpus:  ## threads and CPUs of each rank: simulated machines, real launchers, and libraries in containers, with the toolkit and without (minutes)
	@scripts/build-image mpi
	@scripts/test -m "" -q -s tests/cpus "--torch-python=$$(scripts/dev/torch-python || true)" "--with=mpich=$$(scripts/dev/python-with mpich || true)"

.PHONY: test-network
test-network:  ## real containers with several networks, other names and IPv6 alone: network, launcher, seconds, result (some minutes)
	@scripts/build-image mpi && scripts/build-image mpi trixie
	@scripts/test -m "" --table network --every tests/networks -q --no-header

.PHONY: test-ports
test-ports:  ## 30 jobs of two nodes at once on one host network, no port set; then foreign listeners at every default port (a minute)
	@scripts/test -m "" tests/loopback/test_ports.py tests/process/test_ports.py "--torch-python=$$(scripts/dev/torch-python)" --durations=0

.PHONY: test-gate
test-gate:  ## the gate before each attempt: simulated cards with errors, memory that is held for 20 s, executables of a folder (a minute)
	@scripts/test -m "" tests/loopback/test_gate.py tests/process/test_gate.py --durations=0

.PHONY: test-platforms
test-platforms:  ## which platform a container is recognised as, and what follows: platform, case, result
	@scripts/test -m "" --table platforms --every tests/unit/test_platforms.py tests/unit/test_detection.py -q --no-header

.PHONY: test-slurm
test-slurm:  ## a real Slurm of two nodes in containers: row, what was done, what was seen, seconds, result (ten minutes)
	@scripts/test-slurm

.PHONY: test-deploy
test-deploy:  ## every target and kind by its reader's own schemas, kustomize's recipes, compose files on v2 and v1.29: case, checked against, result
	@scripts/dev/setup-engine && scripts/dev/setup-compose-v1 && scripts/build-image mpi
	@kubectl=$$(scripts/dev/kubectl) && PATH="$$PATH:$${kubectl%/*}" scripts/test -m "" --table deploy --every tests/unit/test_deploy*.py tests/process/test_deploy*.py tests/compose/test_deployed_compose.py -q --no-header

.PHONY: test-security
test-security:  ## every point of docs/explanation/security.md, also the slow ones (marker `slow`), on both images: point, seconds, result
	@scripts/build-image gpu && scripts/build-image ascend
	@scripts/test -m "" --table security --hypothesis-profile=thorough tests/security -q --no-header

.PHONY: simulate
simulate:  ## 20,000 schedules of failures in simulated time, then mutations that must be found (a quarter of an hour)
	@$$(scripts/dev/venv test lint demo)/bin/python -m tests.simulation $(ARGS)

.PHONY: sbom
sbom:  ## list what is in both images, as CycloneDX JSON in build/sbom
	@scripts/build-image gpu && scripts/build-image ascend
	@scripts/sbom.py entrypoint-gpu:dev entrypoint-ascend:dev

.PHONY: images
images:  ## build entrypoint-gpu:dev and entrypoint-ascend:dev on a Debian base
	@scripts/build-image gpu
	@scripts/build-image ascend

.PHONY: wheel
wheel:  ## the toolkit as a Python wheel, in build/: to install into an image of your own, docs/how-to/images.md
	@scripts/wheel

.PHONY: completion
completion:  ## completion for bash and zsh, and the man page, in build/share or SHARE=FOLDER: docs/how-to/completion.md
	@$$(scripts/dev/venv test lint demo)/bin/python scripts/completion.py $${SHARE:-build/share}

.PHONY: release
release:  ## wheel, source archive, images, lists, provenance, checksums, in build/release; KEY=~/.ssh/id_ed25519 signs; IMAGES= for none
	@$$(scripts/dev/venv test lint demo)/bin/python scripts/release.py $(if $(KEY),--key $(KEY)) $(if $(filter undefined,$(origin IMAGES)),,--images "$(IMAGES)")

.PHONY: verify
verify:  ## check a release with no network: SIGNERS=FILE or UNSIGNED=1; FROM=FOLDER (default: build/release)
	@scripts/verify.py $(FROM) $(if $(SIGNERS),--signers $(SIGNERS)) $(if $(UNSIGNED),--unsigned)

.PHONY: test-release
test-release:  ## a release made twice has the same bytes, and no byte of it can be changed unnoticed; IMAGES="toolkit"
	@IMAGES="$(IMAGES)" scripts/test -m slow tests/process/test_release.py -v

.PHONY: test-wheel
test-wheel:  ## the tests that start the command, with the built wheel in place of the checkout (some minutes)
	@scripts/test-wheel

.PHONY: mutants
mutants:  ## wrong changes of spec, plan and job that no test notices: a sample by a seed (10 minutes of CPU); ARGS="--sample 100 --seed 1"
	@$$(scripts/dev/venv test mutants)/bin/python scripts/mutants.py $(ARGS)

.PHONY: rehearse
rehearse:  ## follow README and its pages "I have ..." word by word in a bare Debian 12; PAGES="docs/how-to/docker.md"
	@scripts/rehearse $(PAGES)

.PHONY: docs
docs:  ## the docs site, in build/docs: search, light and dark; a dead link or anchor fails
	@scripts/docs

.PHONY: bench
bench:  ## every row of docs/performance.md beside its comparison, and that page from it (an hour); ROWS="boot end" RUNS=3
	@scripts/build-image mpi && scripts/bench/run --keep $(ROWS) $(if $(RUNS),--runs $(RUNS))

.PHONY: bench-check
bench-check:  ## some minutes of it: fails if a ratio is over 1.3 times the one of docs/performance.json, or of a commit: BASE=v1
	@base=$(if $(BASE),$$(scripts/bench/base $(BASE))) && scripts/build-image mpi && \
	  scripts/bench/run --check $(ROWS) $(if $(RUNS),--runs $(RUNS)) $${base:+--against $$base}

.PHONY: promises
promises:  ## what is promised, which tests hold it, and what shows that these can fail
	@$$(scripts/dev/venv test lint demo)/bin/python -m tests.promises

.PHONY: golden
golden:  ## write the golden files anew; read the diff before you commit it
	@python=$$(scripts/dev/venv test lint demo)/bin/python && \
	$$python -m tests.golden && $$python -m tests.golden_deploy && $$python -m tests.golden_phases && $$python -m tests.golden_fields >docs/reference/spec.md && \
	$$python -m tests.golden_causes >docs/how-to/why-did-my-job-stop.md && \
	git status --short -- tests docs
