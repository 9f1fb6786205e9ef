#!/usr/bin/env bash
# Everything that can be said about the code without running it.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "lint: gofmt"
unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
  echo "not formatted (run gofmt -w):" >&2
  echo "$unformatted" >&2
  exit 1
fi

echo "lint: go mod tidy"
go mod tidy -diff

for target in linux/amd64 linux/arm64 darwin/arm64; do
  echo "lint: go vet for $target"
  GOOS=${target%/*} GOARCH=${target#*/} go vet ./...
done

echo "lint: build for linux/arm64"
GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/pandastack
GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/guest

echo "lint: staticcheck"
go tool -modfile=tools/go.mod staticcheck ./...

echo "lint: shell scripts"
for f in scripts/*.sh .ci/run; do bash -n "$f"; done
echo "lint: ok"
