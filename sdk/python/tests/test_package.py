"""What is installed is what was tested: the wheel, from a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from conftest import REPOSITORY, Server

SMOKE = """
import pandastack, sys
assert "site-packages" in pandastack.__file__, pandastack.__file__
with pandastack.Sandbox.create() as sandbox:
    print(sandbox.exec("echo hello").stdout, end="")
    process = sandbox.run_background("cat")
    process.send_stdin("again")
    process.close_stdin()
    print(process.wait(timeout=60).stdout)
"""


def test_wheel(server: Server, tmp_path: Path) -> None:
    package = REPOSITORY / "sdk" / "python"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(package)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("pandastack-*.whl")
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        metadata = z.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    assert "pandastack/py.typed" in names and any(n.endswith("licenses/LICENSE") for n in names)
    assert not [n for n in names if "test" in n or "tools" in n]
    assert "Requires-Python: >=3.9" in metadata and "License-Expression: Apache-2.0" in metadata
    assert "Project-URL: Homepage, https://github.com/pandastack/pandastack\n" in metadata
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line] == [
        "Requires-Dist: httpx<1,>=0.27",
        "Requires-Dist: wsproto<2,>=1.2",
    ]

    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    settings = {**os.environ, "PANDASTACK_API": server.url, "PANDASTACK_API_KEY": server.key}
    done = subprocess.run([python, "-c", SMOKE], env=settings, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("hello\nagain\n", 0), done.stderr
