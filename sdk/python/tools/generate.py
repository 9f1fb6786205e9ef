"""Writes what this package takes from the server's description of itself.

Two files are made: the types of the API from api/openapi.json, and the table of
errors from docs/errors.md. Run it after either has changed:

    python tools/generate.py          # writes src/pandastack/_generated
    python tools/generate.py --check  # fails if what is there is not current

It needs nothing but Python. A test runs the check.
"""

from __future__ import annotations

import json
import keyword
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
    "Process": "ProcessInfo",
}

# What a class of the package adds to a type of the API.
MIXINS = {"CodeOutput": "ShownOutput", "CodeRun": "ShownRun"}

# Bodies that the surface writes itself: their fields are its parameters.
LEFT_OUT = {
    "Checkpoint", "CreateSandbox", "CreateSnapshot", "CreateToken", "Envelope", "Exec", "ExecInput",
    "Fork", "MoveInputBody", "Promote", "Restore",
}

# The server leaves these out where they are false.
FALSE_WHEN_ABSENT = {
    ("CodeEvent", "timed_out"), ("CodeRun", "timed_out"), ("CodeRun", "truncated"), ("ExecResult", "timed_out"),
    ("ExecResult", "truncated"), ("Process", "args_cut"), ("TreeNode", "promoted"),
}

DESCRIPTIONS = {
    "CheckpointPolicy": "Which checkpoints of a sandbox are kept. 0 is no limit.",
    "Changed": "How many files and directories an operation changed.",
    "CodeContext": "An interpreter that keeps its state between executions.",
    "CodeError": "An error that code raised, or its interruption.",
    "CodeEvent": "One event of an execution.",
    "CodeLanguages": "What contexts can run.",
    "CodeOutput": "One value in every form that it was shown in. A notebook displays it.",
    "CodeRun": "A finished execution. A notebook displays it.",
    "Connection": "One line of a connection log: an attempt to reach something, when it ended or was refused.",
    "ConnectionLog": "The newest part of a sandbox's connection log, oldest first.",
    "ContextList": "The contexts of a sandbox, oldest first.",
    "DirList": "The entries of a directory.",
    "ErrorBody": "A failure as the server writes it.",
    "Event": "Something that happened to a sandbox.",
    "ExecEventRecord": "One event of a command under way, as the server writes it.",
    "ExecResult": "A finished command.",
    "Extracted": "What an archive held.",
    "FileEvent": "One change below a watched directory. A rename is of the old path; the new one has a create.",
    "FileInfo": "One entry of a sandbox's filesystem.",
    "GitAuth": "A name and a password or token for a remote over HTTP.",
    "GitBranch": "One branch.",
    "GitBranches": "The branches of a repository.",
    "GitCommit": "One commit.",
    "GitFile": "A file that differs from the last commit.",
    "GitLog": "Commits, newest first.",
    "GitPatch": "Changes in git's patch format.",
    "GitStatus": "How a repository stands.",
    "GlobResult": "The files that match, in order of their paths.",
    "LSPLanguage": "A language, and the servers that are known for it.",
    "LSPLanguageList": "Every language that there can be a language server for.",
    "LSPServer": "A program that speaks the Language Server Protocol.",
    "LinkTarget": "What a symbolic link says.",
    "ForkTreeRecord": "Children that were forked at once, as the server writes them.",
    "Health": "Whether the server is up.",
    "IdlePolicy": "When a sandbox goes to sleep by itself.",
    "Lifecycle": "How long a sandbox lives.",
    "LogLine": "One line that a process in a sandbox wrote.",
    "Me": "The caller.",
    "Metrics": "What a sandbox uses now.",
    "MetricsSample": "One step of a series.",
    "MetricsSeries": "What a sandbox used over a while, as its server measured it.",
    "Network": "What a sandbox may reach, and the networks that it has joined.",
    "NetworkGroup": "A network that links sandboxes.",
    "NetworkGroupList": "The caller's networks, by name.",
    "NetworkMember": "A sandbox in a network.",
    "NewToken": "An API key that was just made, with its secret.",
    "Port": "A TCP port of a sandbox.",
    "PortList": "The ports of a sandbox, in order.",
    "Preview": "The address of a port's preview.",
    "PreviewURL": "A signed address of a preview.",
    "ProcessInfo": "A process of a sandbox.",
    "ProcessList": "The processes of a sandbox, in order of their start.",
    "Promoted": "What a promote did.",
    "ReplacedFile": "One file with replacements.",
    "ReplaceResult": "What was replaced, or with dry_run would be.",
    "SearchMatch": "One line that matches, or with names one file.",
    "SearchResult": "What a search found, by path and line.",
    "SandboxRecord": "A sandbox as the server last described it.",
    "SandboxList": "One page of sandboxes, newest first.",
    "SignedFile": "A URL for one file that works without a key until it expires.",
    "Snapshot": "A snapshot or checkpoint.",
    "SnapshotList": "One page of snapshots, newest first.",
    "SSHInfo": "How to reach a sandbox by SSH.",
    "SSHKey": "A public key that may open shells in the sandboxes of its owner.",
    "SSHKeyList": "The caller's SSH keys, oldest first.",
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

from .._display import ShownOutput, ShownRun
from .._record import Record
from .._times import parse_time
'''


def class_name(name: str) -> str:
    return RENAMED.get(name, name)


def field_name(prop: str) -> str:
    """A property as a field: some of them are words of the language."""
    return prop + "_" if keyword.iskeyword(prop) else prop


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
        doc += textwrap.wrap(f"{field_name(prop)}: {text}", 90, subsequent_indent="    ")
    base = f"{MIXINS[name]}, Record" if name in MIXINS else "Record"
    out = ["", "", "@dataclass(init=False, repr=False, eq=False)", f"class {cls}({base}):"] + docstring(doc, "    ") + [""]
    for prop in required:
        out.append(f"    {field_name(prop)}: {python_type(properties[prop])}")
    for prop in optional:
        kind = python_type(properties[prop])
        if (name, prop) in FALSE_WHEN_ABSENT:
            out.append(f"    {prop}: bool = False")
        elif kind.startswith("Dict"):
            out.append(f"    {field_name(prop)}: {kind} = field(default_factory=dict)")
        elif kind.startswith("List"):
            out.append(f"    {field_name(prop)}: {kind} = field(default_factory=list)")
        else:
            out.append(f"    {field_name(prop)}: {kind if kind == 'Any' else f'Optional[{kind}]'} = None")
    out += initializer(name, properties, required, optional)
    out += ["", "    @classmethod", f'    def from_dict(cls, d: Mapping[str, Any]) -> "{cls}":', "        return cls("]
    for prop in required:
        out.append(f"            {field_name(prop)}={reader(properties[prop], f'd[{prop!r}]')},".replace("'", '"'))
    for prop in optional:
        read = reader(properties[prop], f"d[{prop!r}]")
        kind = python_type(properties[prop])
        if (name, prop) in FALSE_WHEN_ABSENT:
            line = f"{prop}=bool(d.get({prop!r}))"
        elif kind.startswith("Dict"):
            line = f"{field_name(prop)}=dict(d.get({prop!r}) or {{}})"
        elif kind.startswith("List"):
            line = f"{field_name(prop)}={reader(properties[prop], f'(d.get({prop!r}) or [])')}"
        elif read == f"d[{prop!r}]":
            line = f"{field_name(prop)}=d.get({prop!r})"
        else:
            line = f"{field_name(prop)}={read} if d.get({prop!r}) is not None else None"
        out.append(f"            {line},".replace("'", '"'))
    return out + ["        )"]


def initializer(name: str, properties: dict[str, Any], required: list[str], optional: list[str]) -> list[str]:
    """The __init__ of a dataclass, as the decorator would write it."""
    parameters = [f"{field_name(prop)}: {python_type(properties[prop])}" for prop in required]
    body = [f"        self.{field_name(prop)} = {field_name(prop)}" for prop in required]
    for prop in optional:
        kind, attribute = python_type(properties[prop]), field_name(prop)
        value = attribute
        if (name, prop) in FALSE_WHEN_ABSENT:
            parameters.append(f"{attribute}: bool = False")
        else:
            parameters.append(f"{attribute}: {kind if kind == 'Any' else f'Optional[{kind}]'} = None")
            if kind.startswith(("Dict", "List")):
                value = f"{'{}' if kind.startswith('Dict') else '[]'} if {attribute} is None else {attribute}"
        body.append(f"        self.{attribute} = {value}")
    return ["", "    def __init__(", "        self,", *(f"        {p}," for p in parameters), "    ) -> None:", *body]


def sandbox_fields(schema: dict[str, Any]) -> str:
    """The record of a sandbox as properties, for its handle."""
    named = sorted({name for s in schema["properties"].values() for name in re.findall(r"\w+", python_type(s)) if name in named_in(schema)})
    out = [HEADER.format(source="api/openapi.json"), '"""The record of a sandbox as properties, for its handle."""', "", "from __future__ import annotations", ""]
    out += ["from typing import TYPE_CHECKING, Dict, List, Optional", "", "if TYPE_CHECKING:", "    from datetime import datetime", ""]
    out += [f"    from .models import {', '.join([*named, 'SandboxRecord'])}"]
    out += ["", "", "class SandboxFields:", '    """The fields of a sandbox\'s record, as they were last read."""', "", "    record: SandboxRecord"]
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
    return "\n".join(out) + "\n"


def named_in(schema: dict[str, Any]) -> set[str]:
    """The classes of the schemas that a schema refers to."""
    return {class_name(name) for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema))}


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
    """The models that the surface names; what they refer to comes with them."""
    names: set[str] = set()
    for path in TARGET.parent.rglob("*.py"):
        for block in re.findall(r"_generated\.models import \(?([^)]*?)(?:\)|\n\n)", path.read_text()):
            names |= {name.strip() for name in block.replace("\n", ",").split(",")}
        names |= set(re.findall(r"\bmodels\.([A-Z]\w+)", path.read_text()))
    return names


def models(openapi: dict[str, Any]) -> str:
    schemas = openapi["components"]["schemas"]
    lines = [HEADER.format(source="api/openapi.json") + PREAMBLE.rstrip("\n")]
    for name in order(schemas):
        lines += model(name, schemas[name])
    return "\n".join(lines) + "\n"


# The class of each family of the catalogue.
CLASSES = {
    "auth": "AuthError",
    "not_found": "NotFoundError",
    "bad_request": "BadRequestError",
    "conflict": "ConflictError",
    "quota": "QuotaError",
    "capacity": "CapacityError",
    "timeout": "TimeoutError",
    "server": "ServerError",
    "connection": "APIConnectionError",
}
# What a code that the catalogue lacks goes by.
FAMILY_BY_STATUS = {
    401: "AuthError", 403: "AuthError", 404: "NotFoundError", 409: "ConflictError", 429: "QuotaError",
    501: "BadRequestError", 504: "TimeoutError", 507: "CapacityError",
}


def errors(markdown: str) -> str:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\d{3}) \| (yes|no) \| ([a-z_]+) \| (.+) \|$", markdown, re.M)
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
    for code, status, retry, family, hint in rows:
        lines.append(f"    {json.dumps(code)}: (")
        lines.append(f"        {json.dumps(CLASSES[family])}, {status}, {retry == 'yes'},")
        lines.append(f"        {json.dumps(hint, ensure_ascii=False)},")
        lines.append("    ),")
    lines += ["}", "", "FAMILY_BY_STATUS: Dict[int, str] = {"]
    lines += [f'    {status}: "{name}",' for status, name in sorted(FAMILY_BY_STATUS.items())]
    return "\n".join(lines + ["}"]) + "\n"


def generated() -> dict[Path, str]:
    openapi = json.loads((REPOSITORY / "api" / "openapi.json").read_text())
    return {
        TARGET / "models.py": models(openapi),
        TARGET / "fields.py": sandbox_fields(openapi["components"]["schemas"]["Sandbox"]),
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
