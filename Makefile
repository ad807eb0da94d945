# `make` lists what can be made. Everything sets itself up: packages by apt, Python by pip, the engine by scripts/dev/setup-engine.
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo:  ## boot 2 nodes x 2 ranks on this machine and train: no container engine needed; ARGS='--kill worker-1@5s'
	@scripts/demo $(ARGS)

.PHONY: test
test:  ## for every change: lint, types, units, real sshd and mpirun, and of each kind of container test one or two
	@scripts/test

.PHONY: test-all
test-all:  ## each test once, and one table; CHANGED=1 leaves out what no change can touch, AREAS="launchers slurm" all others
	@scripts/test all $(if $(CHANGED),--changed) $(AREAS)

.PHONY: test-release
test-release:  ## before a tag: also arm64, all bases, 20,000 schedules, a rehearsal of the pages, benchmarks; three rounds of faults (hours)
	@scripts/test release && scripts/test release --rounds 2 faults

.PHONY: lint
lint:  ## ruff, mypy --strict, shellcheck, hadolint, and an audit that fails in CI if nobody can be asked
	@scripts/lint

.PHONY: images
images:  ## build entrypoint-gpu:dev and entrypoint-ascend:dev on a Debian base
	@scripts/build-image gpu
	@scripts/build-image ascend

.PHONY: release
release:  ## wheel, source archive, images, lists, provenance, checksums, in build/release; KEY=~/.ssh/id_ed25519 signs; IMAGES= for none
	@$$(scripts/dev/venv test lint demo)/bin/python scripts/release.py $(if $(KEY),--key $(KEY)) $(if $(filter undefined,$(origin IMAGES)),,--images "$(IMAGES)")

.PHONY: verify
verify:  ## check build/release before you publish it: its files, KEY's signature, this commit; a first run without a network
	@RELEASE=$(CURDIR)/build/release scripts/test -m "" -p no:randomly -x -v -rs tests/process/test_release.py -k artefacts

.PHONY: size
size:  ## lines and tokens of each package, what a job loads, settings, messages, commands, tests, scripts; TREE=FOLDER of another checkout
	@$$(scripts/dev/venv test lint demo)/bin/python scripts/size.py $(TREE)

.PHONY: docs
docs:  ## the docs site, in build/docs: search, light and dark; a dead link or anchor fails
	@scripts/docs

.PHONY: screenshots
screenshots:  ## pictures of the timeline and of the docs site in a real Chromium, in docs/images: look at them before you commit
	@scripts/dev/need chromium fonts-dejavu-core fonts-wqy-microhei pngquant && scripts/docs && scripts/test screenshots
	@pngquant --force --ext .png 64 -- docs/images/site/*.png

.PHONY: bench
bench:  ## every row of docs/performance.md next to its comparison, and that page from it (an hour and a half); ROWS="boot ranks" RUNS=3
	@scripts/build-image gpu && scripts/bench/run --keep $(ROWS) $(if $(RUNS),--runs $(RUNS))

.PHONY: golden
golden:  ## write the golden files anew; read the diff before you commit it
	@python=$$(scripts/dev/venv test lint demo)/bin/python && \
	$$python -m tests.golden && $$python -m tests.golden_deploy && $$python -m tests.golden_pages && $$python -m tests.size && \
	git status --short -- tests docs
