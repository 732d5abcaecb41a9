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
SOAK ?= 2m
GOVULNCHECK ?= v1.9.0
BENCH ?= .
BENCHFLAGS ?=
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
check: build lint test ratios modules tidy-check ## All that CI runs, apart from soak and e2e

.PHONY: build
build: ## Compile all packages, and the binary into bin/
	$(GO) build ./...
	$(GO) build -o bin/headgate ./cmd/headgate

.PHONY: test
test: ## Test the root module under the race detector, then what needs another build
	$(GO) test -race -shuffle=on ./...
	$(GO) test -run Allocations ./core ./chain ./middleware ./telemetry
	$(GO) test -tags headgatecheck ./chain ./middleware

.PHONY: modules
modules: ## Vet and test the modules nested in the tree
	@for dir in $(MODULES); do (cd "$$dir" && $(GO) vet ./... && $(GO) test -race -shuffle=on ./...); done

.PHONY: soak
soak: ## Load, flips, kills and reconnects for SOAK (2m): nothing may grow
	HEADGATE_PROOF_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run '^TestSoak$$' ./internal/proof

.PHONY: proof
proof: ## Draw ten times as many hostile pipelines and faults as make test does
	HEADGATE_PROOF_SCALE=10 $(GO) test -race -count=1 -timeout 1h -v -run 'Transparency|Enforcement|Overload' ./internal/proof

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

# Jaeger takes minutes to compile: once a version, outside of the tree.
JAEGER_MODULE := github.com/jaegertracing/jaeger
JAEGER_VERSION = $(shell cd tools/jaeger && $(GO) list -m -f '{{.Version}}' $(JAEGER_MODULE))
JAEGER = $${XDG_CACHE_HOME:-$$HOME/.cache}/headgate/jaeger-$(JAEGER_VERSION)/jaeger

# Prometheus 3 likewise, without the discovery of targets that nobody here needs:
# Debian's cannot keep classic and native buckets side by side.
PROMETHEUS_MODULE := github.com/prometheus/prometheus
PROMETHEUS_VERSION = $(shell cd tools/prometheus && $(GO) list -m -f '{{.Version}}' $(PROMETHEUS_MODULE))
PROMETHEUS3 = $${XDG_CACHE_HOME:-$$HOME/.cache}/headgate/prometheus-$(PROMETHEUS_VERSION)/prometheus

# need installs Debian's packages, given as COMMAND:PACKAGE, whose commands are
# missing. What needs them fails without: nothing is ever skipped.
define need
@packages=()
for pair in $(1); do
	command -v "$${pair%:*}" >/dev/null || packages+=("$${pair##*:}")
done
if (($${#packages[@]})); then
	export DEBIAN_FRONTEND=noninteractive
	if ! { apt-get update && apt-get install -y --no-install-recommends "$${packages[@]}"; }; then
		echo "missing, and could not be installed: $${packages[*]}" >&2
		exit 1
	fi
fi
endef

# modules installs what a folder's package-lock.json says.
define modules
if [[ ! $(1)/node_modules/.package-lock.json -nt $(1)/package-lock.json ]]; then
	(cd $(1) && npm ci)
	touch $(1)/node_modules/.package-lock.json
fi
endef

# once builds a tool into a file outside of the tree: whole, or not at all.
define once
@tool="$(1)"
if [[ ! -x $$tool ]]; then
	echo "building $${tool##*/}, once: $(2)"
	mkdir -p "$${tool%/*}"
	part=$$(mktemp -d "$${tool%/*}/part.XXXXXX")
	trap 'rm -rf "$$part"' EXIT
	(cd $(3) && $(GO) build -trimpath -ldflags='-s -w' -o "$$part/tool" $(4))
	mv "$$part/tool" "$$tool"
fi
endef

.PHONY: e2e-deps
e2e-deps: jaeger prometheus3
	$(call need,node:nodejs npm:npm prometheus:prometheus promtool:prometheus)
	$(call modules,e2e)

.PHONY: jaeger
jaeger:
	$(call once,$(JAEGER),about ten minutes,tools/jaeger,$(JAEGER_MODULE)/cmd/jaeger)

.PHONY: prometheus3
prometheus3:
	$(call once,$(PROMETHEUS3),about five minutes,tools/prometheus,-tags remove_all_sd $(PROMETHEUS_MODULE)/cmd/prometheus)

.PHONY: observe
observe: jaeger ## Run the demo with Prometheus and Jaeger until Ctrl-C, and print what to open (DEMOFLAGS)
	$(call need,prometheus:prometheus)
	$(GO) build -o bin/headgate ./cmd/headgate
	JAEGER="$(JAEGER)" DEMOFLAGS='$(DEMOFLAGS)' exec tools/observe

# Four minutes, most of them an incident to be drawn.
.PHONY: pictures
pictures: jaeger ## Draw the dashboards and a trace from live data into doc/pictures
	$(call need,node:nodejs npm:npm prometheus:prometheus chromium:chromium)
	$(call modules,tools/pictures)
	$(GO) build -o bin/ ./cmd/headgate ./cmd/examples/remote
	JAEGER="$(JAEGER)" DEMOFLAGS='--traffic 20 --host stdio:bin/remote --config tools/pictures/policy.json' \
		exec tools/observe tools/pictures/incident.sh doc/pictures

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

# Findings in the standard library are for whoever builds, with the Go of the day.
.PHONY: vuln
vuln: ## Look for known vulnerabilities in modules; the database is a Go module too
	@dir=$$(mktemp -d)
	trap 'rm -rf "$$dir"' EXIT
	GOBIN="$$dir" $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	GOBIN="$$dir" $(GO) install golang.org/x/vulndb/cmd/indexdb@latest
	data=$$($(GO) mod download -json golang.org/x/vulndb@latest | sed -n 's/^\t"Dir": "\(.*\)",/\1/p')
	"$$dir/indexdb" -vulns "$$data/data/osv" -out "$$dir/db"
	"$$dir/govulncheck" -db "file://$$dir/db" ./... | tee "$$dir/report" || true
	! grep '^ *Module: ' "$$dir/report"

.PHONY: bench
bench: ## Measure what Headgate costs against its aims (BENCHFLAGS="-run mutator -figures")
	@$(GO) run ./internal/bench/report $(BENCHFLAGS)

# Ratios, not times: both sides are measured in turns, and once more if need be.
.PHONY: ratios
ratios: ## Fail when something costs a fifth more beside its reference than it used to
	@$(GO) run ./internal/bench/ratios

.PHONY: bench-pictures
bench-pictures: ## Draw what doc/PERFORMANCE.md shows, from data measured here and now
	@$(GO) run ./internal/bench/report -pictures doc/pictures

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
	rm -rf bin coverage.out coverage.html e2e/node_modules tools/pictures/node_modules
	find . -name .git -prune -o -name '*.test' -type f -print0 | xargs -0r rm -f

# One shell per recipe, so that conditions and loops read as in a script.
.ONESHELL:
