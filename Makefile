# Everything a person does here is one of these targets. They need root on
# Linux (Debian or Ubuntu), Go and make; what else is missing they install and
# say so. After a first run all of them work offline.

SHELL      := /bin/bash
GO         ?= go
ARCH       ?= $(shell $(GO) env GOARCH)
VERSION    ?= $(shell cat VERSION)
COMMIT     ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
IMAGE_CACHE ?= /var/cache/pandastack/images

export CGO_ENABLED = 0

LDFLAGS := -s -w -X github.com/pandastack/pandastack/internal/server.version=$(VERSION) -X github.com/pandastack/pandastack/internal/server.commit=$(COMMIT)
GUEST   := internal/guest/guestbin/guest_linux_$(ARCH)

.PHONY: help build guest quickstart test test-sdks lint bench requirements base code-interpreter clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: guest ## Build bin/pandastack, one static binary with the guest program in it
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/pandastack ./cmd/pandastack

guest:
	GOOS=linux GOARCH=$(ARCH) $(GO) build -trimpath -ldflags '-s -w' -o $(GUEST) ./cmd/guest

requirements:
	@scripts/requirements.sh

base: build requirements ## Build the base image, once, into the image cache
	@bin/pandastack image build base --image-cache $(IMAGE_CACHE)

quickstart: build requirements ## From nothing to code running in a sandbox, then clean up
	@IMAGE_CACHE=$(IMAGE_CACHE) scripts/quickstart.sh

code-interpreter: base ## Build the image for code contexts, once, into the image cache
	@bin/pandastack image build code-interpreter --image-cache $(IMAGE_CACHE)

test: base code-interpreter ## Run every test against real sandboxes
	@IMAGE_CACHE=$(IMAGE_CACHE) scripts/test.sh

test-sdks: base ## Test the Python and TypeScript SDKs; needs Python and Node, and their registries
	@IMAGE_CACHE=$(IMAGE_CACHE) scripts/test-python.sh
	@IMAGE_CACHE=$(IMAGE_CACHE) scripts/test-typescript.sh

lint: guest ## Format, vet on every platform, staticcheck, shell scripts
	@scripts/lint.sh

bench: base ## Measure, and write JSON to bench/results
	@IMAGE_CACHE=$(IMAGE_CACHE) scripts/bench.sh

clean: ## Remove what was built here
	rm -rf bin internal/guest/guestbin/guest_linux_*
