# extfused. `make test` and `make run` set up all they need on Debian or Ubuntu
# with Go; the other targets are described beside them.

GO ?= go
# The product is pure Go; only the race detector needs cgo.
BUILD = CGO_ENABLED=0 $(GO) build

.PHONY: all build test test-deps run lint crash posix fuzz bench install uninstall clean

all: build

build: ## bin/extfused
	$(BUILD) -o bin/extfused ./cmd/extfused

test-deps:
	@bash scripts/setup-test-deps.sh

test: test-deps ## unit, race, invariants and real-mount tests; SUITES="unit mount" picks
	@bash scripts/test.sh $(SUITES)

run: ## mount a demo image at ./mnt until Ctrl-C
	@bash scripts/run-demo.sh

lint: ## gofmt, vet, staticcheck, checklocks, import rules
	@bash scripts/lint.sh

crash: test-deps ## power cuts, CRASH_STATES=10000 distinct ones, and 50 kills
	@bash scripts/crash.sh

posix: test-deps ## POSIX conformance on a real mount
	@bash scripts/posix.sh

fuzz: ## every fuzz target for FUZZTIME=30s
	@bash scripts/fuzz.sh

bench: ## side by side with the kernel, fuse2fs and the floor; BENCH_ARGS=-h
	@bash scripts/bench/run.sh $(BENCH_ARGS)

install: build ## to PREFIX=/usr/local, with mount(8)'s links
	@bash scripts/install.sh

uninstall:
	@bash scripts/install.sh --uninstall

clean: ## what building left
	rm -rf bin
