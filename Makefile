# sqube's tasks, one target per habit. `make` prints them.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

# Every go command gets the same flags, so that the packages of Kubernetes are compiled once for the binary, the tests and
# the linter. grpcnotrace leaves out golang.org/x/net/trace, whose templates would keep the linker from dropping methods.
export CGO_ENABLED := 0
export GOFLAGS     += -trimpath -tags=grpcnotrace

# What /version answers: the version of Kubernetes that the API is, and the commit of sqube that serves it.
K8S      = $(shell go list -m -f '{{.Version}}' k8s.io/kubernetes)
COMMIT   = $(shell git rev-parse HEAD)
TREE     = $(if $(shell git status --porcelain),dirty,clean)
DATE     = $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
V       := k8s.io/component-base/version
VERSION  = -X $V.gitVersion=$(K8S) \
           -X $V.gitMajor=$(word 1,$(subst ., ,$(K8S:v%=%))) -X $V.gitMinor=$(word 2,$(subst ., ,$(K8S:v%=%))) \
           -X $V.gitCommit=$(COMMIT) -X $V.gitTreeState=$(TREE) -X $V.buildDate=$(DATE)
# Functions aligned to 16 bytes instead of 32 make the binary 1 MB smaller.
GOBUILD  = go build -ldflags "-s -w -funcalign=16 $(VERSION)"

# The packages whose tests run under the race detector: the store, its engines, and what hands watch events around.
RACE := ./sqlstore/... ./dialect/... ./server/loopback/...

# Arguments of `make run` and `make bench`: make run ARGS='--datastore postgres://…'
ARGS ?=

##@ Use

help: ## print this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## serve https://127.0.0.1:6443 from ./data and leave ./data/admin.kubeconfig
	exec bin/sqube serve --data-dir data --bind-address 127.0.0.1 --secure-port 6443 $(ARGS)

build: ## build bin/sqube
	@mkdir -p bin
	@$(GOBUILD) -o bin/sqube ./cmd/sqube
	@printf 'bin/sqube: %d MB\n' $$(( $$(wc -c <bin/sqube) / 1000000 ))

kubectl: ## build bin/kubectl, the real one, as the tests use it
	@mkdir -p bin
	@cd test/tools && $(GOBUILD) -o ../../bin/kubectl ./kubectl

##@ Check

test: race unit e2e ## run every test, on SQLite and on Postgres

# One package at a time, since upstream's suite gives the store a few seconds for a hundred writes.
race: gcc bin/withpostgres ## the part of the tests that runs under the race detector: the store and its watches
	CGO_ENABLED=1 bin/withpostgres go test -race -timeout 30m -p 1 $(RACE)

unit: bin/withpostgres ## the part of the tests that is neither race nor e2e
	bin/withpostgres go test -timeout 30m $$(go list ./... | grep -vxF "$$(go list $(RACE) ./test/...)")

# These link no server: they run bin/sqube. One package at a time, since they load the machine and measure waits.
e2e: build kubectl curl pgbouncer bin/withpostgres ## the part of the tests that looks at sqube from outside
	SQUBE_BIN=$(CURDIR)/bin/sqube SQUBE_KUBECTL=$(CURDIR)/bin/kubectl bin/withpostgres go test -timeout 30m -p 1 ./test/...

# For how long `make fuzz` runs each target.
FUZZTIME ?= 1m

fuzz: ## run every fuzz target, each for FUZZTIME (1m); their seeds run in the tests
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			go test "$$(dirname "$$file")" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) </dev/null; \
		done; done

# For how long `make robustness` plays rounds, each with a seed of its own; with SEED=n it plays that one once. A round has
# ROUND of faults in each configuration.
DURATION ?= 10m
ROUND    ?= 20s
SEED     ?=

robustness: build ## let servers and databases fail at random for DURATION (10m), or once with SEED=n: see test/robustness
	SQUBE_BIN=$(CURDIR)/bin/sqube go test ./test/robustness -run TestRobustness -count 1 -v -timeout 0 \
		-duration $(ROUND) $(if $(SEED),-seed $(SEED),-seed 0 -for $(DURATION))

lint: ## check formatting, go vet, staticcheck and the import rules
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
		if [ -n "$$unformatted" ]; then echo "not formatted; run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	@mkdir -p bin && go build -C test/tools -o ../../bin/ honnef.co/go/tools/cmd/staticcheck ./imports
	bin/imports
	go vet ./...
	go vet -C test/tools ./...
	bin/staticcheck -checks inherit,-ST1005 ./... # an error may start with a name that is in capitals

bench: ## measure sqube, and other servers beside it: see test/bench
	go run ./test/bench $(ARGS)

record: ## write the recordings that the tests of sqube import use anew, from kube-apiserver on etcd and on kine
	go run ./test/import/record

compare: ## play requests to sqube and to kube-apiserver and print every difference: see test/compare
	go run ./test/compare $(ARGS)

##@ Change

generate: ## write the generated files anew
	go generate ./...

verify: generate ## fail when the generated files are not what `make generate` writes
	git diff --exit-code -- $$(git grep -l '^//go:generate' -- '*.go' | xargs -n1 dirname)

clean: ## remove bin; ./data stays
	rm -rf bin

# The race detector links with the C compiler.
gcc:
	@test/tools/need gcc gcc libc6-dev

# One of the tests runs the README's requests as they stand.
curl:
	@test/tools/need curl curl ca-certificates

# One of the tests has servers reach Postgres through it.
pgbouncer:
	@PATH=$$PATH:/usr/sbin test/tools/need pgbouncer pgbouncer

bin/withpostgres: FORCE
	@mkdir -p bin && go build -o $@ ./test/harness/withpostgres

.PHONY: help run build kubectl test race unit e2e fuzz robustness lint bench record compare generate verify clean gcc curl pgbouncer FORCE
