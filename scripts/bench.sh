#!/usr/bin/env bash
# Measures a server of its own, and other runtimes on the same machine and the
# same root filesystem. The report goes to bench/results.
#
# BENCH_N (100) is how many samples of each latency it takes, BENCH_DENSITY (100)
# how many sandboxes it keeps at once, BENCH_RESULTS the directory of the report.
set -euo pipefail
cd "$(dirname "$0")/.."
IMAGE_CACHE=$(readlink -m "${IMAGE_CACHE:-/var/cache/pandastack}")
results=${BENCH_RESULTS:-bench/results}

if [ "$(id -u)" -ne 0 ]; then
  echo "error: the benchmark starts real sandboxes, which needs root" >&2
  echo "hint: sudo -E make bench" >&2
  exit 1
fi
# podman is measured where it is installed; it is too big to install for this.
scripts/requirements.sh erofs-utils runc

# The stock runsc is the command line of the gVisor module that is linked into
# bin/pandastack, without any of our changes.
gvisor=$(go list -modfile=tools/go.mod -m -f '{{.Version}}' gvisor.dev/gvisor)
runsc=$IMAGE_CACHE/tools/runsc-stock-$gvisor-$(go env GOVERSION)-$(go env GOARCH)
if [ ! -x "$runsc" ]; then
  echo "building the stock runsc (once)"
  mkdir -p "$(dirname "$runsc")"
  CGO_ENABLED=0 go build -modfile=tools/go.mod -trimpath -ldflags '-s -w' -o "$runsc.$$" gvisor.dev/gvisor/runsc
  mv "$runsc.$$" "$runsc"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/pandastack-bench.XXXXXX")
server=
finish() {
  status=$?
  if [ -n "$server" ]; then
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || true
  fi
  if [ $status -ne 0 ] && [ -s "$work/server.log" ]; then
    echo "the end of the server's log:" >&2
    tail -n 20 "$work/server.log" >&2
  fi
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The settings of this shell's own server are not those of the one measured.
for name in $(compgen -e PANDASTACK_ || true); do unset "$name"; done
export PANDASTACK_IMAGE_CACHE=$IMAGE_CACHE
bin/pandastack server --data-dir "$work/data" --listen 127.0.0.1:0 >"$work/server.log" 2>&1 &
server=$!

# ready asks the server's /readyz, with nothing but the shell.
ready() {
  local address line=
  address=$(sed -n 's/.*"addr": *"\([^"]*\)".*/\1/p' "$work/data/server.json" 2>/dev/null) || return 1
  [ -n "$address" ] || return 1
  export PANDASTACK_API=http://$address
  line=$({
    exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
    printf 'GET /readyz HTTP/1.0\r\nHost: %s\r\n\r\n' "$address" >&3
    IFS= read -r -t 5 line <&3
    echo "$line"
  } 2>/dev/null) || return 1
  [[ $line == *" 200 "* ]]
}

echo "starting a server, and making its base image if there is none"
until ready; do
  if ! kill -0 "$server" 2>/dev/null; then
    echo "error: the server ended" >&2
    exit 1
  fi
  if [ $SECONDS -gt 1800 ]; then
    echo "error: the server is not ready after 30 minutes" >&2
    exit 1
  fi
  sleep 0.2
done
PANDASTACK_API_KEY=$(cat "$work/data/admin.key")
export PANDASTACK_API_KEY

# The neighbours run the image that the server's sandboxes run.
digest=$(bin/pandastack template get base -o json | sed -n 's/.*"digest": *"sha256:\([0-9a-f]*\)".*/\1/p')
image=$(find "$IMAGE_CACHE" -name "$digest.erofs" -print -quit)
if [ -z "$digest" ] || [ -z "$image" ]; then
  echo "error: the image of the template base (${digest:-no digest}) is not in $IMAGE_CACHE" >&2
  exit 1
fi

virt=novirt
if grep -qE '^flags.* (vmx|svm)( |$)' /proc/cpuinfo; then virt=virt; fi
name=$(date -u +%F)-$(nproc)core-$(go env GOARCH)-linux$(uname -r | cut -d. -f1,2)-$virt

bin/pandastack bench --count "${BENCH_N:-100}" --density "${BENCH_DENSITY:-100}" --server-start 20 \
  --neighbours --runsc "$runsc" --image "$image" --json "$work/report.json" | tee "$work/report.txt"

mkdir -p "$results"
cp "$work/report.json" "$results/$name.json"
cp "$work/report.txt" "$results/$name.txt"
echo "written: $results/$name.json and .txt"
