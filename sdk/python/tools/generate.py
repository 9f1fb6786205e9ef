"""Writes what this package takes from the server's description of itself.

Two files are made: the types of the API from api/openapi.json, and the table of
errors from docs/errors.md. Run it after either has changed:

    python tools/generate.py          # writes src/pandastack/_generated
    python tools/generate.py --check  # fails if what is there is not current

It needs nothing but Python. A test runs the check.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
REPOSITORY = PACKAGE.parents[1]
TARGET = PACKAGE / "src" / "pandastack" / "_generated"

HEADER = '# Made by tools/generate.py from {source}. Do not edit.\n'

# Names that the surface has for something else, and names that say too little.
RENAMED = {
    "Sandbox": "SandboxRecord",
    "ForkTree": "ForkTreeRecord",
    "Error": "ErrorBody",
    "ExecEvent": "ExecEventRecord",
}

# Bodies that the surface writes itself: their fields are its parameters.
LEFT_OUT = {
    "Checkpoint", "CreateSandbox", "CreateSnapshot", "CreateToken", "Envelope", "Exec", "ExecInput",
    "Fork", "MoveInputBody", "Promote", "Restore",
}

# The server leaves these out where they are false.
FALSE_WHEN_ABSENT = {("ExecResult", "timed_out"), ("ExecResult", "truncated"), ("TreeNode", "promoted")}

DESCRIPTIONS = {
    "CheckpointPolicy": "Which checkpoints of a sandbox are kept. 0 is no limit.",
    "DirList": "The entries of a directory.",
    "ErrorBody": "A failure as the server writes it.",
    "Event": "Something that happened to a sandbox.",
    "ExecEventRecord": "One event of a command under way, as the server writes it.",
    "ExecResult": "A finished command.",
    "FileInfo": "One entry of a sandbox's filesystem.",
    "ForkTreeRecord": "Children that were forked at once, as the server writes them.",
    "Health": "Whether the server is up.",
    "IdlePolicy": "When a sandbox goes to sleep by itself.",
    "Lifecycle": "How long a sandbox lives.",
    "LogLine": "One line that a process in a sandbox wrote.",
    "Me": "The caller.",
    "Metrics": "What a sandbox uses now.",
    "NewToken": "An API key that was just made, with its secret.",
    "Promoted": "What a promote did.",
    "SandboxRecord": "A sandbox as the server last described it.",
    "SandboxList": "One page of sandboxes, newest first.",
    "Snapshot": "A snapshot or checkpoint.",
    "SnapshotList": "One page of snapshots, newest first.",
    "Step": "One named part of a start and how long it took.",
    "Template": "An image that sandboxes start from.",
    "TemplateList": "Every template of a server.",
    "Timeline": "The checkpoints of a sandbox, oldest first.",
    "Token": "An API key without its secret.",
    "TokenList": "The caller's API keys.",
    "Tree": "The lineage of a sandbox, parents before children.",
    "TreeNode": "One sandbox of a lineage, which may be gone.",
    "Version": "What a server runs.",
    "VolumeMount": "A volume attached to a sandbox.",
}

PREAMBLE = '''
"""The types of the API.

Each has from_dict, which reads what the server sent: fields that this version
does not know are passed over, and one that is missing or of the wrong kind is
a ValueError, TypeError, KeyError or AttributeError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional

from .._times import parse_time
'''


def class_name(name: str) -> str:
    return RENAMED.get(name, name)


def referred(schema: dict[str, Any]) -> str | None:
    ref = schema.get("$ref")
    return class_name(ref.rsplit("/", 1)[1]) if ref else None


def python_type(schema: dict[str, Any]) -> str:
    """The annotation of a schema."""
    ref = referred(schema)
    if ref:
        return ref
    kind = schema.get("type")
    if kind == "string":
        return "datetime" if schema.get("format") == "date-time" else "str"
    if kind == "array":
        return f"List[{python_type(schema['items'])}]"
    if kind == "object":
        values = schema.get("additionalProperties") or {}
        return f"Dict[str, {python_type(values) if values else 'Any'}]"
    # A value of several types has none.
    return {"integer": "int", "number": "float", "boolean": "bool", "None": "Any"}[str(kind)]


def reader(schema: dict[str, Any], value: str) -> str:
    """The expression that reads a value of a schema."""
    ref = referred(schema)
    if ref:
        return f"{ref}.from_dict({value})"
    if schema.get("format") == "date-time":
        return f"parse_time({value})"
    if schema.get("type") == "array":
        item = reader(schema["items"], "item")
        return f"list({value})" if item == "item" else f"[{item} for item in {value}]"
    if schema.get("type") == "object":
        return f"dict({value})"
    return value


def sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def docstring(lines: list[str], indent: str) -> list[str]:
    if len(lines) == 1:
        return [f'{indent}"""{lines[0]}"""']
    return [f'{indent}"""{lines[0]}'] + [(indent + line).rstrip() for line in lines[1:]] + [f'{indent}"""']


def model(name: str, schema: dict[str, Any]) -> list[str]:
    """One dataclass."""
    cls = class_name(name)
    properties: dict[str, Any] = schema["properties"]
    required = [p for p in schema.get("required", []) if p in properties]
    optional = [p for p in properties if p not in required]
    doc = [DESCRIPTIONS.get(cls, f"{cls} of the API.")]
    described = [(p, properties[p]) for p in required + optional if properties[p].get("description") or properties[p].get("enum")]
    if described:
        doc.append("")
    for prop, s in described:
        text = sentence(s["description"]) if s.get("description") else ""
        if s.get("enum"):
            text = (text + " One of " + ", ".join(s["enum"]) + ".").strip()
        doc += textwrap.wrap(f"{prop}: {text}", 90, subsequent_indent="    ")
    out = ["", "", "@dataclass", f"class {cls}:"] + docstring(doc, "    ") + [""]
    for prop in required:
        out.append(f"    {prop}: {python_type(properties[prop])}")
    for prop in optional:
        kind = python_type(properties[prop])
        if (name, prop) in FALSE_WHEN_ABSENT:
            out.append(f"    {prop}: bool = False")
        elif kind.startswith("Dict"):
            out.append(f"    {prop}: {kind} = field(default_factory=dict)")
        elif kind.startswith("List"):
            out.append(f"    {prop}: {kind} = field(default_factory=list)")
        else:
            out.append(f"    {prop}: Optional[{kind}] = None")
    out += ["", "    @classmethod", f'    def from_dict(cls, d: Mapping[str, Any]) -> "{cls}":', "        return cls("]
    for prop in required:
        out.append(f"            {prop}={reader(properties[prop], f'd[{prop!r}]')},".replace("'", '"'))
    for prop in optional:
        read = reader(properties[prop], f"d[{prop!r}]")
        kind = python_type(properties[prop])
        if (name, prop) in FALSE_WHEN_ABSENT:
            line = f"{prop}=bool(d.get({prop!r}))"
        elif kind.startswith("Dict"):
            line = f"{prop}=dict(d.get({prop!r}) or {{}})"
        elif kind.startswith("List"):
            line = f"{prop}={reader(properties[prop], f'(d.get({prop!r}) or [])')}"
        elif read == f"d[{prop!r}]":
            line = f"{prop}=d.get({prop!r})"
        else:
            line = f"{prop}={read} if d.get({prop!r}) is not None else None"
        out.append(f"            {line},".replace("'", '"'))
    return out + ["        )"]


def sandbox_fields(schema: dict[str, Any]) -> list[str]:
    """The record of a sandbox as properties, for its handle."""
    out = ["", "", "class SandboxFields:", '    """The fields of a sandbox\'s record, as they were last read."""', "", "    record: SandboxRecord"]
    required = schema["required"]
    for prop, s in schema["properties"].items():
        kind = python_type(s)
        if prop not in required and not kind.startswith(("Dict", "List")):
            kind = f"Optional[{kind}]"
        text = sentence(s["description"]) if s.get("description") else ""
        if s.get("enum"):
            text = (text + " One of " + ", ".join(s["enum"]) + ".").strip()
        if not text:
            text = PLAIN.get(prop, sentence(prop.replace("_", " ").capitalize()))
        out += ["", "    @property", f"    def {prop}(self) -> {kind}:", f'        """{text}"""', f"        return self.record.{prop}"]
    return out


PLAIN = {
    "id": "Names the sandbox.",
    "template": "What it started from.",
    "driver": "What isolates it, such as gvisor.",
    "created_at": "When it was created.",
}


def order(schemas: dict[str, Any]) -> list[str]:
    """Schemas, those that others refer to first."""
    done: list[str] = []

    def visit(name: str) -> None:
        if name in done or name in LEFT_OUT:
            return
        for other in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schemas[name])):
            visit(other)
        done.append(name)

    for name in sorted(schemas):
        if class_name(name) in used():
            visit(name)
    return done


def used() -> set[str]:
    """The models that the surface imports; what they refer to comes with them."""
    names: set[str] = set()
    for path in TARGET.parent.rglob("*.py"):
        for block in re.findall(r"_generated\.models import \(?([^)]*?)(?:\)|\n\n)", path.read_text()):
            names |= {name.strip() for name in block.replace("\n", ",").split(",")}
    return names


def models(openapi: dict[str, Any]) -> str:
    schemas = openapi["components"]["schemas"]
    lines = [HEADER.format(source="api/openapi.json") + PREAMBLE.rstrip("\n")]
    for name in order(schemas):
        lines += model(name, schemas[name])
    lines += sandbox_fields(schemas["Sandbox"])
    return "\n".join(lines) + "\n"


# Which class a failure is: by its code where the status alone would mislead,
# otherwise by the status.
FAMILY_BY_PREFIX = (
    ("auth.", "AuthError"),
    ("quota.", "QuotaError"),
    ("rate_limit.", "QuotaError"),
    ("capacity.", "CapacityError"),
    ("client.", "APIConnectionError"),
    ("file.permission_denied", "BadRequestError"),
    ("request.timeout", "TimeoutError"),
    ("host.unreachable", "CapacityError"),
)
FAMILY_BY_STATUS = {
    401: "AuthError", 403: "AuthError", 404: "NotFoundError", 409: "ConflictError", 429: "QuotaError",
    501: "BadRequestError", 504: "TimeoutError", 507: "CapacityError",
}


def family(code: str, status: int) -> str:
    for prefix, name in FAMILY_BY_PREFIX:
        if code.startswith(prefix):
            return name
    if status in FAMILY_BY_STATUS:
        return FAMILY_BY_STATUS[status]
    return "BadRequestError" if 400 <= status < 500 else "ServerError"


def errors(markdown: str) -> str:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\d{3}) \| (yes|no) \| (.+) \|$", markdown, re.M)
    if not rows:
        raise SystemExit("docs/errors.md has no table of errors")
    lines = [
        HEADER.format(source="docs/errors.md"),
        '"""The catalogue of errors: the class, status, whether trying again can help, and advice of each code."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Dict, Tuple",
        "",
        "CATALOGUE: Dict[str, Tuple[str, int, bool, str]] = {",
    ]
    for code, status, retry, hint in rows:
        lines.append(f"    {json.dumps(code)}: (")
        lines.append(f"        {json.dumps(family(code, int(status)))}, {status}, {retry == 'yes'},")
        lines.append(f"        {json.dumps(hint, ensure_ascii=False)},")
        lines.append("    ),")
    lines += ["}", "", "FAMILY_BY_STATUS: Dict[int, str] = {"]
    lines += [f'    {status}: "{name}",' for status, name in sorted(FAMILY_BY_STATUS.items())]
    return "\n".join(lines + ["}"]) + "\n"


def generated() -> dict[Path, str]:
    openapi = json.loads((REPOSITORY / "api" / "openapi.json").read_text())
    return {
        TARGET / "models.py": models(openapi),
        TARGET / "errors.py": errors((REPOSITORY / "docs" / "errors.md").read_text()),
    }


def main() -> int:
    stale = [(p, text) for p, text in generated().items() if not p.exists() or p.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path, _ in stale:
            print(f"{path.relative_to(PACKAGE)} is not current; run python tools/generate.py", file=sys.stderr)
        return 1 if stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for path, text in stale:
        path.write_text(text)
        print(f"wrote {path.relative_to(PACKAGE)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
