#!/usr/bin/env bash
# Tests the Python SDK against a real server: types, behaviour, examples, and
# the wheel from a clean environment. PYTHON chooses the interpreter (3.9 or
# later), PANDASTACK_BIN the server (default bin/pandastack).
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
  echo "error: the tests start real sandboxes, which needs root" >&2
  exit 1
fi
export PANDASTACK_BIN=${PANDASTACK_BIN:-$PWD/bin/pandastack}
if [ ! -x "$PANDASTACK_BIN" ]; then
  echo "error: there is no server at $PANDASTACK_BIN" >&2
  echo "hint: make build" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
"${PYTHON:-python3}" -m venv "$work/venv"
python=$work/venv/bin/python
# A copy is installed, so that building it leaves nothing in the checkout.
mkdir "$work/package"
cp -r sdk/python/{src,tests,tools,pyproject.toml,README.md,LICENSE} "$work/package/"
"$python" -m pip install --quiet "$work/package[test]"
# The SDKs of the agents in examples/python need Python 3.10.
if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  "$python" -m pip install --quiet --requirement examples/python/requirements.txt
else
  echo "python: the examples of agents are left out: this Python is older than 3.10"
fi

cd sdk/python
echo "python: $("$python" --version)"
echo "python: mypy --strict"
"$work/venv/bin/mypy" --cache-dir "$work/mypy"

# pyright needs Node, which the machine may not have.
if command -v node >/dev/null; then
  echo "python: pyright"
  "$python" -m pip install --quiet pyright
  "$work/venv/bin/pyright" --pythonpath "$python"
  (cd "$work" && PATH=$work/venv/bin:$PATH pyright --ignoreexternal --verifytypes pandastack | tail -3)
else
  echo "python: pyright is left out: there is no Node here"
fi

echo "python: pytest"
"$python" -m pytest -p no:cacheprovider "$@"
