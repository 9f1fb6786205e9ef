#!/usr/bin/env bash
# From nothing to code running in a real sandbox, and back: a server on a free
# port with a temporary data directory, one sandbox, code, files, timings.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${IMAGE_CACHE:-/var/cache/pandastack/images}

if [ "$(id -u)" -ne 0 ]; then
  echo "error: sandboxes need root (namespaces, cgroups); the code in them gets none" >&2
  echo "hint: sudo -E make quickstart" >&2
  exit 1
fi

pandastack=$PWD/bin/pandastack
dir=$(mktemp -d /tmp/pandastack-quickstart.XXXXXX)
server=
cleanup() {
  if [ -n "$server" ]; then
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$dir"
}
trap cleanup EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '$ pandastack'; printf ' %s' "${@:2}" | sed "s/$/\n/"; "$@"; }

say "The base image (made once, kept in $cache)"
"$pandastack" image build base --image-cache "$cache"

say "A server on a free port"
"$pandastack" server --data-dir "$dir" --listen 127.0.0.1:0 --image-cache "$cache" >"$dir/server.log" 2>&1 &
server=$!
ready() {
  kill -0 "$server" 2>/dev/null || { echo "error: the server ended:" >&2; cat "$dir/server.log" >&2; exit 1; }
  [ -s "$dir/admin.key" ] && [ -s "$dir/server.json" ] || return 1
  PANDASTACK_API=http://$(sed -E 's/.*"addr":"([^"]*)".*/\1/' "$dir/server.json")
  PANDASTACK_API_KEY=$(cat "$dir/admin.key")
  export PANDASTACK_API PANDASTACK_API_KEY
  "$pandastack" template get base -o json 2>/dev/null | grep -q '"snapshots"'
}
for _ in $(seq 600); do
  if ready; then break; fi
  sleep 0.1
done
ready || { echo "error: the server is not ready after a minute:" >&2; cat "$dir/server.log" >&2; exit 1; }
echo "$PANDASTACK_API answers"

say "A sandbox"
from=$(date +%s%N)
id=$("$pandastack" sandbox create --ttl 10m | tail -n 1 | awk '{print $NF}')
echo "$id, created in $((($(date +%s%N) - from) / 1000000)) ms (the program's start included)"

say "Python and a shell in it"
run "$pandastack" sandbox exec "$id" -- python3 -c 'import platform, sys; print("Python", sys.version.split()[0], "on", platform.release())'
run "$pandastack" sandbox exec "$id" -- 'echo "I am $(id -un) on $(hostname)"; echo "the host is hidden: $(ls /proc | grep -c "^[0-9]") processes in sight"'

say "A file in, a file out"
echo "hello from the host" >"$dir/note.txt"
run "$pandastack" sandbox cp "$dir/note.txt" "$id:/home/user/note.txt"
run "$pandastack" sandbox exec "$id" -- 'tr a-z A-Z <note.txt >loud.txt'
run "$pandastack" sandbox cp "$id:/home/user/loud.txt" "$dir/loud.txt"
cat "$dir/loud.txt"

say "How it came up"
run "$pandastack" sandbox get "$id"

say "Create to first output, measured"
"$pandastack" bench --scenario sequential --count 10 2>/dev/null | sed -n '4,6p'

say "Gone again"
run "$pandastack" sandbox delete "$id"

cat <<EOF

That was it; the server is stopped and its directory removed. To keep one:

  sudo bin/pandastack server --image-cache $cache
  export PANDASTACK_API_KEY=\$(sudo cat /var/lib/pandastack/admin.key)
EOF
