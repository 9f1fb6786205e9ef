#!/usr/bin/env bash
# Runs every test, then proves that none left anything behind.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
  echo "error: the tests start real sandboxes, which needs root" >&2
  echo "hint: sudo -E make test" >&2
  exit 1
fi
scripts/requirements.sh busybox-static postgresql curl jq runc
before=$(scripts/leftovers.sh)

# Two packages at a time: each may run several sandboxes.
status=0
go test -p 2 -timeout 20m ./... || status=$?

after=$(scripts/leftovers.sh)
if [ "$before" != "$after" ]; then
  echo "FAIL: the tests left something behind:" >&2
  diff <(echo "$before") <(echo "$after") >&2 || true
  exit 1
fi
exit $status
