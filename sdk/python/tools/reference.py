"""Writes docs/reference/python.md from the docstrings of the package.

    python tools/reference.py          # writes it
    python tools/reference.py --check  # fails if what is there is not current
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
TARGET = PACKAGE.parents[1] / "docs" / "reference" / "python.md"
sys.path.insert(0, str(PACKAGE / "src"))

SURFACE = [
    "PandaStack", "Sandboxes", "Sandbox", "Filesystem", "File", "Process", "Processes", "ExecStream", "Stream", "Terminal",
    "Contexts", "CodeStream", "Git", "LanguageServer", "ForkTree", "SandboxNetwork", "Ports", "Networks",
    "Snapshots", "Templates", "Tokens", "SSHKeys",
]
ERRORS = [
    "PandastackError", "AuthError", "NotFoundError", "BadRequestError", "ConflictError", "QuotaError", "CapacityError",
    "TimeoutError", "ServerError", "APIConnectionError",
]
MODELS = [
    "ExecResult", "Output", "ProcessInfo", "CodeRun", "CodeOutput", "CodeError", "CodeEvent", "CodeContext", "FileInfo",
    "FileEvent", "GlobResult", "SearchResult", "SearchMatch", "ReplaceResult", "ReplacedFile", "Extracted", "SignedFile",
    "GitStatus", "GitFile", "GitCommit", "GitBranch", "GitPatch", "GitAuth", "LSPLanguage", "LSPServer", "SandboxRecord", "Lifecycle", "IdlePolicy", "CheckpointPolicy", "Snapshot",
    "Timeline", "Promoted", "Tree", "TreeNode", "Metrics", "MetricsSeries", "MetricsSample", "Event", "LogLine", "Network", "NetworkGroup",
    "NetworkMember", "ConnectionLog", "Connection", "Port", "PreviewURL", "SSHInfo", "SSHKey", "Template", "Me", "Token", "NewToken",
    "Version", "Health", "Step", "VolumeMount",
]

# Methods that only the package itself calls.
INTERNAL = {("Process", "start"), ("File", "start")}

INTRODUCTION = """# Python reference

Made from the docstrings of the package by `sdk/python/tools/reference.py`; do not edit. To begin, read
`sdk/python/README.md`.

Everything here is sync. For asyncio there are the same names with `Async` before those of classes (`AsyncPandaStack`,
`AsyncSandbox`, ...): methods are awaited, streams and processes are iterated over with `async for`, and `with` is
`async with`. `Client` is another name of `PandaStack`. Times are `datetime` with a time zone; sizes are in bytes and
durations in seconds unless their name says otherwise (`_mb` is MiB, `_ms` milliseconds).
"""


def signature(f: Any) -> str:
    parts: list[str] = []
    starred = False
    for p in list(inspect.signature(f).parameters.values())[1:]:
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        text = p.name
        if p.annotation is not p.empty:
            text += f": {p.annotation}"
        if p.default is not p.empty:
            text += f" = {p.default!r}"
        parts.append(text)
    returns = inspect.signature(f).return_annotation
    arrow = "" if returns in ("None", inspect.Signature.empty) else f" -> {returns}"
    line = f"{f.__name__}({', '.join(parts)}){arrow}"
    if len(line) <= 110:
        return line
    return f"{f.__name__}(\n" + "".join(f"    {p},\n" for p in parts) + f"){arrow}"


def prose(doc: str | None) -> str:
    """A docstring as Markdown: indented parts are code, lines `name: text` a list."""
    out: list[str] = []
    code = listed = False
    for line in inspect.cleandoc(doc or "").splitlines():
        named = re.match(r"((?:\w+, )*\w+): ", line)
        if named and (listed or not out or not out[-1]):
            line, listed = f"- `{named[1]}`: {line[named.end() :]}", True
        elif listed and line:
            line = "  " + line
        else:
            listed = False
        indented = line.startswith("    ") and not listed and (code or not out or not out[-1])
        if indented and not code:
            out.append("```python" if "(" in line or "import" in line else "```text")
        elif code and not indented and line:
            out.insert(len(out) - 1 if not out[-1] else len(out), "```")
        code = indented or (code and not line)
        out.append(line[4:] if indented else line)
    if code:
        out.append("```")
    return "\n".join(out)


def methods(cls: type) -> list[str]:
    out: list[str] = []
    names: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        if base.__module__.startswith("pandastack") and base.__name__ != "SandboxFields":
            names.update(vars(base))
    for name, value in names.items():
        if name.startswith("_") or (cls.__name__, name) in INTERNAL:
            continue
        if isinstance(value, property):
            out += [f"#### {name}", "", f"`{value.fget.__annotations__.get('return', '')}` {prose(value.__doc__)}", ""]
            continue
        f = value.__func__ if isinstance(value, classmethod) else value
        if not inspect.isfunction(f):
            continue
        kind = " (class method)" if isinstance(value, classmethod) else ""
        out += [f"#### {name}{kind}", "", "```python", signature(f), "```", "", prose(f.__doc__), ""]
    return out


def surface(cls: Any) -> list[str]:
    out = [f"### {cls.__name__}", ""]
    if "__init__" in vars(cls) and cls.__name__ == "PandaStack":
        out += ["```python", signature(cls.__init__).replace("__init__", cls.__name__), "```", ""]
    return [*out, prose(cls.__doc__), "", *methods(cls)]


def model(cls: Any) -> list[str]:
    doc = inspect.cleandoc(cls.__doc__).split("\n\n", 1)
    texts: dict[str, str] = {}
    name = ""
    for line in doc[1].splitlines() if len(doc) > 1 else []:
        head, colon, rest = line.partition(": ")
        if colon and head.isidentifier():
            name, texts[head] = head, rest
        elif name:
            texts[name] += " " + line.strip()
    out = [f"### {cls.__name__}", "", doc[0], "", "| Field | Type | |", "| --- | --- | --- |"]
    for f in dataclasses.fields(cls):
        out.append(f"| `{f.name}` | `{f.type}` | {texts.get(f.name, '')} |")
    shown = [n for n in ("formats", "content") if hasattr(cls, n)]
    more = [line for n in shown for line in (f"`{signature(getattr(cls, n))}`: {prose(getattr(cls, n).__doc__)}", "")]
    return [*out, "", *more]


def text() -> str:
    import pandastack
    from pandastack import errors
    from pandastack._sync import resources

    lines = [INTRODUCTION, "## Clients, sandboxes and what they have", ""]
    for name in SURFACE:
        lines += surface(getattr(resources, name, None) or getattr(pandastack, name))
    lines += ["## Errors", "", prose(errors.__doc__), ""]
    for name in ERRORS:
        lines += [f"### {name}", "", prose(getattr(errors, name).__doc__), ""]
    lines += ["## Values", ""]
    for name in MODELS:
        lines += model(getattr(pandastack, name))
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> int:
    current = TARGET.read_text() if TARGET.exists() else ""
    made = text()
    if made == current:
        return 0
    if "--check" in sys.argv[1:]:
        print("docs/reference/python.md is not current; run python tools/reference.py", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(made)
    print("wrote docs/reference/python.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
