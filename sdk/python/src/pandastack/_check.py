"""Checks of arguments, so that a wrong one is an error before any request."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Sequence, Union

Command = Union[str, Sequence[str]]


def text(name: str, value: object, *, empty: bool = True) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {type(value).__name__}")
    if not empty and not value:
        raise ValueError(f"{name} is empty")
    return value


def optional_text(name: str, value: object) -> str | None:
    return None if value is None else text(name, value)


def identifier(name: str, value: object) -> str:
    """A name that becomes one part of a URL."""
    if not isinstance(value, str) and isinstance(getattr(value, "id", None), str):
        value = getattr(value, "id")
    v = text(name, value, empty=False)
    if v in (".", ".."):
        raise ValueError(f"{name} {v!r} is not the name of anything")
    return v


def number(name: str, value: object, *, low: float = 0, above: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number, not {type(value).__name__}")
    if not (value > low if above else value >= low) or value == float("inf"):
        raise ValueError(f"{name} is {'more than' if above else 'at least'} {low:g}, not {value}")
    return value


def whole(name: str, value: object, *, low: int = 0) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if value < low:
        raise ValueError(f"{name} is at least {low}, not {value}")
    return value


def truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is True or False, not {type(value).__name__}")
    return value


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    v = text(name, value)
    if v not in allowed:
        raise ValueError(f"{name} is one of {', '.join(allowed)}, not {v!r}")
    return v


def labels(name: str, value: object) -> Dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is a mapping of str to str, not {type(value).__name__}")
    for k, v in value.items():
        if not isinstance(k, str) or not isinstance(v, str):
            raise TypeError(f"{name} maps str to str; {k!r}: {v!r} is something else")
    return dict(value)


def path(name: str, value: object) -> str:
    """A path in a sandbox."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    v = text(name, value, empty=False)
    if "\0" in v:
        raise ValueError(f"{name} has a NUL byte")
    return v


def policy(name: str, value: object) -> Dict[str, Any]:
    """A dataclass of the API, or the mapping it stands for."""
    from dataclasses import asdict, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        return {k: v for k, v in asdict(value).items() if v is not None}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{name} is a dataclass of this package or a mapping, not {type(value).__name__}")


def volumes(value: object) -> List[Dict[str, Any]]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise TypeError("volumes is a list of VolumeMount, mappings or names")
    return [{"name": v} if isinstance(v, str) else policy("volumes", v) for v in value]


def command(cmd: object, args: object) -> Dict[str, Any]:
    """The cmd and args of a request, of every form in which a command is given."""
    if isinstance(cmd, str):
        if not cmd:
            raise ValueError("cmd is empty")
        if args is None:
            return {"cmd": cmd}
        return {"cmd": cmd, "args": words("args", args)}
    if isinstance(cmd, (bytes, bytearray)) or not isinstance(cmd, Sequence):
        raise TypeError(f"cmd is a str or a list of str, not {type(cmd).__name__}")
    line = words("cmd", cmd)
    if not line or not line[0]:
        raise ValueError("cmd is empty")
    return {"cmd": line + (words("args", args) if args is not None else [])}


def words(name: str, value: object) -> List[str]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TypeError(f"{name} is a list of str, not {type(value).__name__}")
    for v in value:
        if not isinstance(v, str):
            raise TypeError(f"{name} has {v!r}, which is not a str")
    return list(value)


def run(
    cmd: object,
    args: object,
    timeout_seconds: object,
    cwd: object,
    env: object,
    user: object,
    stdin: object = None,
) -> Dict[str, Any]:
    """The body of a request to run a command."""
    body = command(cmd, args)
    if timeout_seconds is not None:
        body["timeout_seconds"] = number("timeout_seconds", timeout_seconds, above=True)
    if cwd is not None:
        body["cwd"] = path("cwd", cwd)
    if env is not None:
        body["env"] = labels("env", env)
    if user is not None:
        body["user"] = text("user", user, empty=False)
    if stdin is not None:
        if isinstance(stdin, (bytes, bytearray)):
            try:
                stdin = bytes(stdin).decode()
            except UnicodeDecodeError:
                raise ValueError("stdin is not UTF-8 text; send other bytes with run_background and send_stdin") from None
        body["stdin"] = text("stdin", stdin)
    return body


def code(source: object, language: object, context: object, env: object, timeout_seconds: object) -> Dict[str, Any]:
    """The body of a request to run code."""
    body: Dict[str, Any] = {"code": text("code", source)}
    if language is not None and context is not None:
        raise ValueError("a context has its language; pass language or context")
    if language is not None:
        body["language"] = text("language", language, empty=False)
    if context is not None:
        body["context_id"] = identifier("context", context)
    if env is not None:
        body["env"] = labels("env", env)
    if timeout_seconds is not None:
        body["timeout_ms"] = max(1, round(number("timeout_seconds", timeout_seconds, above=True) * 1000))
    return body


def duration(name: str, value: object) -> str:
    """Seconds, or text such as 15m that the server reads."""
    return text(name, value, empty=False) if isinstance(value, str) else f"{number(name, value, above=True):g}s"


def create(
    template: object,
    ttl_seconds: object,
    metadata: object,
    env: object,
    persistent: object,
    driver: object,
    cpu: object,
    memory_mb: object,
    disk_mb: object,
    from_snapshot: object,
    idle_timeout_seconds: object,
    idle: object,
    checkpoints: object,
    mounts: object,
    egress_mbps: object,
    network: object,
    networks: object,
) -> Dict[str, Any]:
    """The body of a request to create a sandbox."""
    body: Dict[str, Any] = {}
    if template is not None:
        body["template"] = text("template", template, empty=False)
    if ttl_seconds is not None:
        body["ttl_seconds"] = whole("ttl_seconds", ttl_seconds, low=1)
    if metadata is not None:
        body["metadata"] = labels("metadata", metadata)
    if env is not None:
        body["env"] = labels("env", env)
    if persistent is not None:
        body["persistent"] = truth("persistent", persistent)
    if driver is not None:
        body["driver"] = text("driver", driver)
    if cpu is not None:
        body["cpu"] = number("cpu", cpu)
    for name, value in (("memory_mb", memory_mb), ("disk_mb", disk_mb), ("egress_mbps", egress_mbps)):
        if value is not None:
            body[name] = whole(name, value)
    if from_snapshot is not None:
        body["from_snapshot"] = identifier("from_snapshot", from_snapshot)
    if idle_timeout_seconds is not None:
        body["idle_timeout_seconds"] = whole("idle_timeout_seconds", idle_timeout_seconds)
    if idle is not None:
        body["idle"] = policy("idle", idle)
    if checkpoints is not None:
        body["checkpoints"] = policy("checkpoints", checkpoints)
    if mounts is not None:
        body["volumes"] = volumes(mounts)
    if network is not None:
        body["network"] = policy("network", network)
    if networks is not None:
        rules = body.setdefault("network", {})
        rules["join"] = [*rules.get("join", []), *words("networks", networks)]
    return body


def fork(metadata: object, env: object, ttl_seconds: object, persistent: object, cpu: object, memory_mb: object, checkpoint: object) -> Dict[str, Any]:
    """The body of a request to fork a sandbox."""
    body = create(None, ttl_seconds, metadata, env, persistent, None, cpu, memory_mb, *(None,) * 9)
    if checkpoint is not None:
        body["checkpoint"] = identifier("checkpoint", checkpoint)
    return body


def lifecycle(ttl_seconds: object, persistent: object, idle_seconds: object, idle: object, checkpoints: object) -> Dict[str, Any]:
    """The body of a request to change a sandbox's lifecycle."""
    body: Dict[str, Any] = {}
    if ttl_seconds is not None:
        body["ttl_seconds"] = whole("ttl_seconds", ttl_seconds, low=1)
    if persistent is not None:
        body["persistent"] = truth("persistent", persistent)
    if idle_seconds is not None:
        body["idle_seconds"] = whole("idle_seconds", idle_seconds)
    if idle is not None:
        body["idle"] = policy("idle", idle)
    if checkpoints is not None:
        body["checkpoints"] = policy("checkpoints", checkpoints)
    return body
