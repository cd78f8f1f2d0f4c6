# sqube's tasks. `make` lists them.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

# All go commands use the same flags, so that Kubernetes' packages are compiled once for the binary, the tests and the linter.
# grpcnotrace leaves out golang.org/x/net/trace, whose templates keep the linker from dropping methods.
export CGO_ENABLED := 0
export GOFLAGS     += -trimpath -tags=grpcnotrace

# What /version reports: the Kubernetes version of the API, and sqube's commit.
K8S      = $(shell go list -m -f '{{.Version}}' k8s.io/kubernetes)
COMMIT   = $(shell git rev-parse HEAD)
TREE     = $(if $(shell git status --porcelain),dirty,clean)
DATE     = $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
V       := k8s.io/component-base/version
STAMP    = -X $V.gitVersion=$(K8S) \
           -X $V.gitMajor=$(word 1,$(subst ., ,$(K8S:v%=%))) -X $V.gitMinor=$(word 2,$(subst ., ,$(K8S:v%=%))) \
           -X $V.gitCommit=$(COMMIT) -X $V.gitTreeState=$(TREE) -X $V.buildDate=$(DATE) \
           -X github.com/sqube/sqube/migrations.Release=$(RELEASE)
# Without -buildvcs=false, a binary would differ with the kind of checkout; STAMP names the commit.
# Aligning functions to 16 bytes instead of 32 makes the binary 1 MB smaller.
GOBUILD  = go build -buildvcs=false -ldflags "-s -w -funcalign=16 $(STAMP)"

# The packages whose tests run under the race detector: those of the store, its engines and the server that start goroutines, or
# whose tests do. What takes longest comes first. The commands' concurrency is tested from outside.
CONCURRENT := \bgo (func|[[:alnum:]_.]+\()|\.Go\(|Parallel\(\)
RACE = ./server/servertest ./sqlstore ./dialect/postgres ./dialect/sqlite $(shell git grep --untracked -lE '$(CONCURRENT)' -- 'sqlstore/*.go' 'dialect/*.go' 'server/*.go' | xargs -n1 dirname | sort -ru | sed 's|^|./|')

# make lint vets all packages, with more checks than go test.
TEST := go test -vet=off -ldflags=-w -timeout 30m

# The race detector looks at Go's memory only. SQLite's is C's, and under the detector SQLite takes several times as long.
RACE_FLAGS := -race $(patsubst %,-gcflags=modernc.org/%=-race=false,sqlite/lib libc/... memory)

# Arguments of `make run` and `make bench`: make run ARGS='--datastore postgres://…'
ARGS ?=

##@ Use

help: ## print this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## serve https://127.0.0.1:6443 from ./data and write ./data/admin.kubeconfig
	exec bin/sqube serve --data-dir data --bind-address 127.0.0.1 --secure-port 6443 $(ARGS)

build: ## build bin/sqube
	@mkdir -p bin
	@$(GOBUILD) -o bin/sqube ./cmd/sqube
	@printf 'bin/sqube: %d MB\n' $$(( $$(wc -c <bin/sqube) / 1000000 ))

kubectl: ## build bin/kubectl, the real one, for the tests
	@mkdir -p bin
	@cd test/tools && $(GOBUILD) -o ../../bin/kubectl ./kubectl

helm: ## build bin/helm, the real one, for the tests of deploy
	@mkdir -p bin
	@cd test/tools/helm && go build -ldflags "-s -w" -o ../../../bin/helm helm.sh/helm/v4/cmd/helm

nfpm: ## build bin/nfpm, which writes the packages
	@mkdir -p bin
	@go build -C test/tools/release -ldflags "-s -w" -o ../../../bin/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm

##@ Check

test: race unit e2e ## run every test, on SQLite and on Postgres

# The other packages leave the processors to apistorage, since upstream's suite gives the store a few seconds for a hundred writes. Three
# of them, and four tests of each, run at once, since they also wait.
race: gcc bin/withpostgres ## run the tests of the store and the server under the race detector
	export CGO_ENABLED=1; go build $(RACE_FLAGS) $(RACE); \
	bin/withpostgres $(TEST) $(RACE_FLAGS) ./sqlstore/apistorage & apistorage=$$!; \
	nice -n 19 bin/withpostgres $(TEST) -p 3 -parallel 4 $(RACE_FLAGS) $$(go list $(RACE) | grep -v /apistorage$$) && others=ok || others=failed; \
	wait $$apistorage && [ $$others = ok ]

unit: bin/withpostgres ## run the tests that are neither in race nor in e2e
	bin/withpostgres $(TEST) $$(go list ./... | grep -vxF "$$(go list $(RACE) ./test/...)")

# What the tests of e2e run.
E2E := SQUBE_BIN=$(CURDIR)/bin/sqube SQUBE_KUBECTL=$(CURDIR)/bin/kubectl SQUBE_HELM=$(CURDIR)/bin/helm \
       SQUBE_PROMTOOL=$(CURDIR)/bin/promtool SQUBE_NFPM=$(CURDIR)/bin/nfpm

# Of the packages of e2e, those that take longest, so that they begin first.
LONG := ./test/deploy ./test/outage ./test/kubectl ./test/bench ./test/robustness ./test/reads

# These packages load the machine or measure memory, so they run after the others.
HEAVY := ./test/serve ./test/flood

# Tests mostly wait, so more of them run at once than there are processors; those of test/tools run beside flood, which waits too. go test
# does not see that bin/sqube, outside the module of test/tools, has changed.
e2e: build kubectl helm nfpm promtool buildah systemd rpm man curl pgbouncer chromium bin/withpostgres ## run the tests that use sqube from outside
	$(E2E) bin/withpostgres $(TEST) -p 4 $$(go list $(LONG) ./test/... | grep -vxF "$$(go list $(HEAVY))")
	$(E2E) bin/withpostgres $(TEST) -parallel 6 ./test/serve
	$(E2E) go test -C test/tools -vet=off -count 1 -timeout 10m ./envtest ./s3 ./console & tools=$$!; \
	$(E2E) bin/withpostgres $(TEST) ./test/flood && flood=ok || flood=failed; \
	wait $$tools && [ $$flood = ok ]

# The commit that `make check` compares with; on a branch, SINCE=main.
SINCE ?= HEAD

check: lint build kubectl bin/withpostgres ## run before a commit: lint, the tests of packages that changed since SINCE (HEAD), and some through clients
	changed=$$(test/tools/changed $(SINCE)); [ -z "$$changed" ] || bin/withpostgres $(TEST) $$changed
	$(E2E) bin/withpostgres $(TEST) -p 2 ./test/concepts/lists ./test/concepts/writes

postgres-versions: build kubectl pgbouncer bin/withpostgres ## run the Postgres tests on each version from 14 to 18
	for version in 14 15 16 17 18; do \
		echo "Postgres $$version"; \
		PG_VERSION=$$version SQUBE_BIN=$(CURDIR)/bin/sqube SQUBE_KUBECTL=$(CURDIR)/bin/kubectl bin/withpostgres \
			go test -timeout 30m -count 1 -p 1 ./dialect/postgres ./migrations ./sqlstore ./test/outage ./test/replicas ./test/robustness; \
	done

# How long `make fuzz` runs each target.
FUZZTIME ?= 1m

fuzz: ## run every fuzz target, each for FUZZTIME (1m); their seeds run in the tests
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			go test "$$(dirname "$$file")" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) </dev/null; \
		done; done

# `make robustness` runs rounds for DURATION, each with its own seed, or one round with SEED=n. In each round, every configuration
# has faults for ROUND.
DURATION ?= 10m
ROUND    ?= 20s
SEED     ?=

robustness: build patroni ## make servers and databases fail at random for DURATION (10m), or once with SEED=n: see test/robustness
	SQUBE_BIN=$(CURDIR)/bin/sqube go test ./test/robustness -run TestRobustness -count 1 -v -timeout 0 -patroni \
		-duration $(ROUND) $(if $(SEED),-seed $(SEED),-seed 0 -for $(DURATION))

# The last sqube with the previous minor version of Kubernetes, and how long it serves beside this one.
OLD ?=
FOR ?= 1h

skew: build bin/withpostgres ## let an older sqube, OLD=PATH, and this one share a database with faults for FOR (1h): see test/replicas, test/robustness
	@test -x "$(OLD)" || { echo "want OLD=path/to/an/older/sqube"; exit 2; }
	SQUBE_BIN=$(CURDIR)/bin/sqube bin/withpostgres $(TEST) ./test/replicas -run TestSkew -count 1 -old $(abspath $(OLD))
	SQUBE_BIN=$(CURDIR)/bin/sqube go test ./test/robustness -run TestRobustness -count 1 -v -timeout 0 -old $(abspath $(OLD)) \
		-duration $(ROUND) $(if $(SEED),-seed $(SEED),-seed 0 -for $(FOR))

scenarios: build kubectl upstream bin/withpostgres ## play what people do with a cluster and print a table: see test/scenarios
	SQUBE_BIN=$(CURDIR)/bin/sqube SQUBE_KUBECTL=$(CURDIR)/bin/kubectl bin/withpostgres \
		go test ./test/scenarios -run TestScenarios -count 1 -v -timeout 20m -upstream $(CURDIR)/bin/upstream

accuracy: build kubectl upstream etcd ## try changes, make them in a real cluster, and compare: see test/trials/accuracy
	SQUBE_BIN=$(CURDIR)/bin/sqube SQUBE_KUBECTL=$(CURDIR)/bin/kubectl \
		go test ./test/trials/accuracy -run TestAccuracy -count 1 -v -timeout 20m -upstream $(CURDIR)/bin/upstream

# Where `make conformance` plays the specs: server, cluster, or cluster/sqlite, for example.
PLACE ?=

# The copies of go.mod and go.sum add what these programs need and sqube does not.
upstream: ## build kube-apiserver, kube-controller-manager and kube-scheduler into bin/upstream
	@mkdir -p bin/upstream && cp go.mod bin/upstream.mod && cp go.sum bin/upstream.sum
	@$(GOBUILD) -mod=mod -modfile bin/upstream.mod -o bin/upstream/ $(addprefix k8s.io/kubernetes/cmd/kube-,apiserver controller-manager scheduler)

# Upstream's e2e specs, and what runs them at once.
e2e-programs:
	@mkdir -p bin/upstream && cp go.mod bin/e2e.mod && cp go.sum bin/e2e.sum
	@go mod edit -require k8s.io/sample-apiserver@$(subst v1,v0,$(K8S)) bin/e2e.mod
	@go test -c -ldflags "-s -w" -mod=mod -modfile bin/e2e.mod -o bin/upstream/e2e.test k8s.io/kubernetes/test/e2e
	@go build -ldflags "-s -w" -mod=mod -modfile bin/e2e.mod -o bin/upstream/ginkgo github.com/onsi/ginkgo/v2/ginkgo

conformance: build kubectl e2e-programs bin/withpostgres ## play upstream's e2e specs on a server and inside a hosted cluster, on both engines: see test/conformance
	SQUBE_BIN=$(CURDIR)/bin/sqube SQUBE_KUBECTL=$(CURDIR)/bin/kubectl bin/withpostgres \
		go test ./test/conformance -run 'TestConformance/$(PLACE)' -count 1 -v -timeout 3h -e2e $(CURDIR)/bin/upstream

# From the module that pins the servers of the benchmark.
etcd:
	@mkdir -p bin/upstream && cp test/bench/peers/go.mod bin/etcd.mod && cp test/bench/peers/go.sum bin/etcd.sum
	@cd test/bench/peers && go build -ldflags "-s -w" -mod=mod -modfile $(CURDIR)/bin/etcd.mod -o $(CURDIR)/bin/upstream/etcd go.etcd.io/etcd/server/v3

# The folder of programs that `make controller-runtime` uses; if unset, those of sqube envtest.
ASSETS ?=

controller-runtime: build kubectl ## run controller-runtime's own tests on sqube envtest, or on the programs in ASSETS
	@bin/sqube envtest --kubectl bin/kubectl bin/envtest
	test/tools/controllerruntime $(or $(ASSETS),bin/envtest)

lint: ## check formatting, go vet, staticcheck, imports, lengths, and the names and links in documents
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
		if [ -n "$$unformatted" ]; then echo "not formatted; run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	@mkdir -p bin && go build -C test/tools -o ../../bin/ honnef.co/go/tools/cmd/staticcheck ./rules
	bin/rules
	go vet ./...
	go vet -C test/tools ./...
	bin/staticcheck -checks inherit,-ST1005 ./... # an error may start with a name that is in capitals

bench: ## measure sqube, and other servers beside it: see test/bench
	go run ./test/bench $(ARGS)

record: ## record kube-apiserver's state on etcd and on kine for the tests of sqube import
	go run ./test/import/record

# The last sqube with an older minor version of Kubernetes.
SQUBE ?=

fixture: ## record the database of an older sqube, SQUBE=PATH, for the tests of upgrades
	@test -x "$(SQUBE)" || { echo "want SQUBE=path/to/an/older/sqube"; exit 2; }
	go run ./test/serve/record $(SQUBE)

compare: ## send requests to sqube and to kube-apiserver and print every difference: see test/compare
	go run ./test/compare $(ARGS)

gates: build ## flip every feature gate alone, in each version that can be emulated: see test/serve/gates_test.go
	SQUBE_BIN=$(CURDIR)/bin/sqube go test ./test/serve -run TestFeatureGates -count 1 -timeout 2h -every-gate

nightly: compare conformance accuracy postgres-versions controller-runtime gates fuzz robustness ## run what takes too long for every merge; test/compare builds kube-apiserver and etcd

##@ Release

# The platforms of `make dist`. arm is ARMv7.
PLATFORMS ?= linux-amd64 linux-arm64 linux-arm darwin-arm64

# A CPU profile for the compiler in `make dist`, or off.
PGO ?= off

# The version in a release's file names: the tag, or a string that sorts before every tag and after older commits.
RELEASE ?= $(or $(patsubst v%,%,$(shell git describe --tags --exact-match --match 'v*' 2>/dev/null)),$\
	0~git$(shell TZ=UTC0 git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd.%h))

dist: build nfpm ## build a release for PLATFORMS into bin/dist: binaries, packages, completions, manual pages, SBOMs, checksums
	@rm -rf bin/dist && mkdir -p bin/dist
	@go build -C test/tools/release -o ../../../bin/sbom ./sbom
	@for platform in $(PLATFORMS); do \
		binary=bin/dist/sqube-$(RELEASE)-$$platform; \
		echo $$binary; \
		GOOS=$${platform%-*} GOARCH=$${platform#*-} GOARM=7 $(GOBUILD) -pgo=$(PGO) -o $$binary ./cmd/sqube; \
		bin/sbom $$binary '$(RELEASE)' >$$binary.cdx.json; \
		[[ $$platform == linux-* ]] || continue; \
		for format in deb rpm; do test/tools/release/packages $$binary $${platform#linux-} $$format '$(RELEASE)' bin/dist; done; \
	done
	@for shell in bash fish zsh; do bin/sqube completion $$shell >bin/dist/sqube-$(RELEASE).$$shell; done
	@rm -rf bin/man && mkdir bin/man && bin/sqube man bin/man
	@tar -C bin --sort=name --owner=0 --group=0 --mode=a+rX,go-w --mtime=@$$(git log -1 --format=%ct) -I 'gzip -9n' -cf bin/dist/sqube-$(RELEASE)-man.tar.gz man
	@cd bin/dist && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .

dist-test: kubectl ## run the quick start with the binaries for arm64 and arm in bin/dist, under qemu
	@test/tools/need qemu-arm-static qemu-user-static
	@test/tools/release/quickstart qemu-aarch64-static bin/dist/sqube-*-linux-arm64
	@test/tools/release/quickstart qemu-arm-static bin/dist/sqube-*-linux-arm

##@ Change

kubernetes: ## move to Kubernetes VERSION (v1.38.0), as far as that needs no thought, and print what it brings: see test/surface
	@test/surface/upgrade '$(VERSION)'

generate: ## update the generated files
	go generate ./...

verify: generate ## fail if `make generate` changes a file
	git diff --exit-code -- $$(git grep -l '^//go:generate' -- '*.go' | xargs -n1 dirname)

clean: ## remove bin, but not ./data
	rm -rf bin

# The race detector needs a C compiler.
gcc:
	@test/tools/need gcc gcc libc6-dev

# A test runs the curl commands of test/concepts/verbs/README.md.
curl:
	@test/tools/need curl curl ca-certificates

# Two configurations of `make robustness` run Postgres under these.
patroni:
	@test/tools/need patroni patroni python3-etcd
	@test/tools/need etcd etcd-server
	@PATH=$$PATH:/usr/sbin test/tools/need haproxy haproxy

# A test puts it between servers and Postgres.
pgbouncer:
	@PATH=$$PATH:/usr/sbin test/tools/need pgbouncer pgbouncer

# The tests of the console are in it.
chromium:
	@test/tools/need chromium chromium fonts-dejavu-core

# A test checks the alerts and the dashboard's queries with it.
promtool:
	@test/tools/unpack promtool prometheus

# One test builds the image with buildah; another checks the units with systemd.
buildah:
	@test/tools/need buildah buildah

systemd:
	@test/tools/need systemd-analyze systemd

# A test installs a package with it.
rpm:
	@test/tools/need rpm rpm

# It renders the manual pages in a package.
man:
	@test/tools/need man man-db

bin/withpostgres: FORCE
	@mkdir -p bin && go build -o $@ ./test/harness/withpostgres

.PHONY: help run build kubectl helm upstream etcd e2e-programs conformance accuracy test check race unit e2e fuzz postgres-versions robustness skew scenarios controller-runtime gates lint bench record fixture compare nightly generate kubernetes verify clean gcc curl patroni pgbouncer chromium promtool buildah systemd rpm man nfpm dist dist-test FORCE
