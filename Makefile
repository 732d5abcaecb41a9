SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --warn-undefined-variables

GO ?= go
# Tools are pinned in modules of their own, apart from the library's graph.
TOOL := $(GO) tool -modfile=tools/go.mod
LINT := $(GO) tool -modfile=tools/lint/go.mod

DEMOFLAGS ?=
FUZZTIME ?= 30s
BENCH ?= .
BASE ?= main
COUNT ?= 10

# Modules nested in the tree hold what is heavy to compile; tools/ holds no code.
MODULES := $(shell find . \( -name node_modules -o -path ./tools \) -prune -o -path './*/go.mod' -printf '%h\n' | sort)
GOFILES := find . \( -name node_modules -o -name testdata -o -name .git \) -prune -o -name '*.go' -print0

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## Run the demo server, with traffic (DEMOFLAGS="--traffic 0")
	@$(GO) build -o bin/headgate ./cmd/headgate
	exec bin/headgate demo $(DEMOFLAGS)

.PHONY: check
check: build lint test modules tidy-check ## All that CI runs, apart from e2e

.PHONY: build
build: ## Compile all packages, and the binary into bin/
	$(GO) build ./...
	$(GO) build -o bin/headgate ./cmd/headgate

.PHONY: test
test: ## Test the root module under the race detector, then what needs another build
	$(GO) test -race -shuffle=on ./...
	$(GO) test -run Allocations ./middleware ./telemetry
	$(GO) test -tags headgatecheck ./chain

.PHONY: modules
modules: ## Vet and test the modules nested in the tree
	@for dir in $(MODULES); do (cd "$$dir" && $(GO) vet ./... && $(GO) test -race -shuffle=on ./...); done

# Not tools/jaeger and tools/prometheus: that takes the tests of all their modules,
# hundreds more. A go.mod or go.sum that lacks something fails their builds.
.PHONY: tidy-check
tidy-check: ## Fail when a go.mod or go.sum is not tidy
	@for dir in . tools tools/lint $(MODULES); do (cd "$$dir" && $(GO) mod tidy -diff); done

.PHONY: e2e
e2e: e2e-deps ## Test the demo with the official TypeScript SDK, a real Prometheus and a real Jaeger
	@(cd e2e && npm test)
	$(GO) build -o bin/headgate ./cmd/headgate
	JAEGER="$(JAEGER)" PROMETHEUS3="$(PROMETHEUS3)" $(GO) test -tags e2e -count=1 -timeout 5m ./e2e/observe

# What e2e needs, without its test.
.PHONY: observe
observe: e2e-deps ## Run the demo with Prometheus and Jaeger on loopback, until Ctrl-C
	@$(GO) build -o bin/headgate ./cmd/headgate
	JAEGER="$(JAEGER)" exec tools/observe

# Jaeger takes minutes to compile: once a version, outside of the tree.
JAEGER_MODULE := github.com/jaegertracing/jaeger
JAEGER_VERSION = $(shell cd tools/jaeger && $(GO) list -m -f '{{.Version}}' $(JAEGER_MODULE))
JAEGER = $${XDG_CACHE_HOME:-$$HOME/.cache}/headgate/jaeger-$(JAEGER_VERSION)/jaeger

# Prometheus 3 likewise, without the discovery of targets that nobody here needs:
# Debian's cannot keep classic and native buckets side by side.
PROMETHEUS_MODULE := github.com/prometheus/prometheus
PROMETHEUS_VERSION = $(shell cd tools/prometheus && $(GO) list -m -f '{{.Version}}' $(PROMETHEUS_MODULE))
PROMETHEUS3 = $${XDG_CACHE_HOME:-$$HOME/.cache}/headgate/prometheus-$(PROMETHEUS_VERSION)/prometheus

# The end-to-end test never skips: what it needs is installed, or it fails.
.PHONY: e2e-deps
e2e-deps:
	@packages=()
	{ command -v node && command -v npm; } >/dev/null || packages+=(nodejs npm)
	{ command -v prometheus && command -v promtool; } >/dev/null || packages+=(prometheus)
	if (($${#packages[@]})); then
		export DEBIAN_FRONTEND=noninteractive
		if ! { apt-get update && apt-get install -y --no-install-recommends "$${packages[@]}"; }; then
			echo "e2e: missing, and could not be installed: $${packages[*]}" >&2
			exit 1
		fi
	fi
	if [[ ! e2e/node_modules/.package-lock.json -nt e2e/package-lock.json ]]; then
		(cd e2e && npm ci)
		touch e2e/node_modules/.package-lock.json
	fi
	jaeger="$(JAEGER)"
	if [[ ! -x $$jaeger ]]; then
		echo "e2e: building Jaeger, once: about ten minutes"
		mkdir -p "$${jaeger%/*}"
		part=$$(mktemp -d "$${jaeger%/*}/part.XXXXXX")
		trap 'rm -rf "$$part"' EXIT
		(cd tools/jaeger && $(GO) build -trimpath -ldflags='-s -w' -o "$$part/jaeger" $(JAEGER_MODULE)/cmd/jaeger)
		mv "$$part/jaeger" "$$jaeger" # whole, or not at all
	fi
	prometheus="$(PROMETHEUS3)"
	if [[ ! -x $$prometheus ]]; then
		echo "e2e: building Prometheus 3, once: about five minutes"
		mkdir -p "$${prometheus%/*}"
		part=$$(mktemp -d "$${prometheus%/*}/part.XXXXXX")
		trap 'rm -rf "$$part"' EXIT
		(cd tools/prometheus && $(GO) build -tags remove_all_sd -trimpath -ldflags='-s -w' -o "$$part/prometheus" $(PROMETHEUS_MODULE)/cmd/prometheus)
		mv "$$part/prometheus" "$$prometheus"
	fi

.PHONY: lint
lint: ## go vet, gofumpt, staticcheck
	@$(GO) vet ./...
	$(GO) vet -tags e2e ./e2e/observe
	unformatted=$$($(GOFILES) | xargs -0r $(TOOL) gofumpt -l)
	if [[ -n $$unformatted ]]; then
		printf 'not formatted, run make fmt:\n%s\n' "$$unformatted" >&2
		exit 1
	fi
	$(TOOL) staticcheck ./...

.PHONY: lint-all
lint-all: lint ## golangci-lint too (minutes to build, once; not in CI)
	$(LINT) golangci-lint run ./...

.PHONY: fmt
fmt: ## Format all Go files
	$(GOFILES) | xargs -0r $(TOOL) gofumpt -w

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s)
	@targets=$$(grep -rHoE --include='*_test.go' --exclude-dir=node_modules '^func Fuzz\w+' . || true)
	while IFS=: read -r file func; do
		[[ -n $$file ]] || continue
		echo "$$file: $${func#func }"
		(cd "$$(dirname "$$file")" && $(GO) test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) .)
	done <<<"$$targets"

.PHONY: bench
bench: ## Run the benchmarks, with allocations
	$(GO) test -bench '$(BENCH)' -benchmem -run '^$$' ./...

.PHONY: bench-diff
bench-diff: ## Compare the benchmarks with those of BASE (main), COUNT (10) runs each
	@dir=$$(mktemp -d)
	trap 'git worktree remove --force "$$dir/base" 2>/dev/null || true; rm -rf "$$dir"' EXIT
	git worktree add --quiet --detach "$$dir/base" '$(BASE)'
	run=($(GO) test -bench '$(BENCH)' -benchmem -count '$(COUNT)' -run '^$$' ./...)
	(cd "$$dir/base" && "$${run[@]}") >"$$dir/base.txt"
	"$${run[@]}" >"$$dir/here.txt"
	$(TOOL) benchstat base="$$dir/base.txt" here="$$dir/here.txt"

.PHONY: cover
cover: ## Measure test coverage into coverage.out and coverage.html
	$(GO) test -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -html=coverage.out -o coverage.html
	$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: golden
golden: ## Write the golden files anew, in the packages that have any
	@for dir in $$(grep -rlE --include='*_test.go' --exclude-dir=node_modules 'flag\.Bool\("update"' . | xargs -r dirname | sort -u); do
		(cd "$$dir" && $(GO) test . -update)
	done

.PHONY: clean
clean: ## Remove what the other targets made
	rm -rf bin coverage.out coverage.html e2e/node_modules
	find . -name .git -prune -o -name '*.test' -type f -print0 | xargs -0r rm -f

# One shell per recipe, so that conditions and loops read as in a script.
.ONESHELL:
