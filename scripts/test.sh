#!/usr/bin/env bash
# Runs every test, then proves that none left anything behind.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
  echo "error: the tests start real sandboxes, which needs root" >&2
  echo "hint: sudo -E make test" >&2
  exit 1
fi
scripts/requirements.sh busybox-static openssh-client postgresql curl jq runc
before=$(scripts/leftovers.sh)

# Two packages at a time: each may run several sandboxes. A package that fails is
# run once more with the machine to itself. Failing then too it has failed; else it
# is named, since a test that depends on the load of the machine is a fault too.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
go test -p 2 -timeout 20m ./... 2>&1 | tee "$log" || status=$?
mapfile -t failed < <(awk '$1 == "FAIL" && $2 ~ /^github\.com\/.*/ { print $2 }' "$log" | sort -u)
if [ $status -ne 0 ] && [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le 3 ]; then
  echo "running again, alone: ${failed[*]}"
  status=0
  go test -p 1 -count 1 -timeout 20m "${failed[@]}" || status=$?
  [ $status -eq 0 ] && echo "UNSTEADY: failed beside other tests and passed alone: ${failed[*]}"
fi

# What was there before may end meanwhile; what is new may not stay.
left=$(comm -13 <(sort <<<"$before") <(scripts/leftovers.sh | sort))
if [ -n "$left" ]; then
  echo "FAIL: the tests left something behind:" >&2
  echo "$left" >&2
  exit 1
fi
exit $status
