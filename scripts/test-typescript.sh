#!/usr/bin/env bash
# Tests the TypeScript SDK against a real server: types, behaviour, the packed
# package from a clean folder, and the examples. Needs Node 20.16 or later with
# npm; PANDASTACK_BIN is the server (default bin/pandastack).
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
  echo "error: the tests start real sandboxes, which needs root" >&2
  exit 1
fi
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "error: there is no Node here" >&2
  echo "hint: install Node 20.16 or later with npm" >&2
  exit 1
fi
export PANDASTACK_BIN=${PANDASTACK_BIN:-$PWD/bin/pandastack}
if [ ! -x "$PANDASTACK_BIN" ]; then
  echo "error: there is no server at $PANDASTACK_BIN" >&2
  echo "hint: make build" >&2
  exit 1
fi
export PANDASTACK_REPOSITORY=$PWD
export NPM_HOME=$HOME

# Everything is built in a copy, so that nothing is left in the checkout: a
# node_modules there would be part of what Go's ./... means.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sdk=$work/sdk
mkdir "$sdk"
(cd sdk/typescript && tar --exclude=./node_modules --exclude=./dist --exclude=./build -cf - .) | tar -xf - -C "$sdk"
cp -r examples/typescript "$work/examples"

quiet=(--no-audit --no-fund --no-update-notifier --loglevel=error)
install=("${quiet[@]}" --prefer-offline --ignore-scripts)

echo "typescript: node $(node --version)"
(cd "$sdk" && npm ci "${install[@]}" >/dev/null)

echo "typescript: build"
(cd "$sdk" && npm run --silent build && node tools/reference.mjs --check && node_modules/.bin/tsc -p tsconfig.test.json)

# Other runtimes, where the registry has them for this machine.
for name in deno bun; do
  mkdir "$work/$name"
  echo '{ "private": true }' >"$work/$name/package.json"
  if (cd "$work/$name" && npm install "${quiet[@]}" --prefer-offline "$name" >/dev/null 2>&1) &&
    "$work/$name/node_modules/.bin/$name" --version >/dev/null 2>&1; then
    export "TEST_${name^^}=$work/$name/node_modules/.bin/$name"
  else
    echo "typescript: $name is left out: it cannot be installed here"
  fi
done

echo "typescript: examples"
(
  cd "$work/examples"
  npm pack "${quiet[@]}" --ignore-scripts --pack-destination "$work" "$sdk" >/dev/null
  npm install "${install[@]}" --no-package-lock >/dev/null "$work"/pandastack-sdk-*.tgz
  node_modules/.bin/tsc -p tsconfig.json
)

echo "typescript: tests"
cd "$sdk"
TEST_ALSO=$work/examples/build/vercel-ai.test.js node test/run.mjs "$@"
node test/overhead.mjs
