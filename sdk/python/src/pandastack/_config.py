"""Which server to talk to, and as whom.

What is passed to a client comes first, then the environment (PANDASTACK_API,
PANDASTACK_API_KEY, PANDASTACK_TOKEN), then the file that `pandastack auth login`
writes, ~/.config/pandastack/config.json.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8080"  # where `pandastack server` listens unless told otherwise
DEFAULT_TIMEOUT = 60.0
DEFAULT_RETRIES = 2


class Settings(NamedTuple):
    """All that a client was told, checked."""

    base_url: str
    key: str
    timeout: float
    retries: int
    user_agent: str
    http2: bool


def settings(
    token: str | None,
    api_key: str | None,
    api_url: str | None,
    base_url: str | None,
    timeout: float,
    retries: int,
    user_agent: str | None,
    http2: bool | None,
) -> Settings:
    from ._check import optional_text, text
    from ._version import __version__

    key = _one("token", optional_text("token", token), "api_key", optional_text("api_key", api_key))
    url = _one("api_url", optional_text("api_url", api_url), "base_url", optional_text("base_url", base_url))
    url, key = _found(url, key)
    if key and (not key.isascii() or any(c.isspace() or not c.isprintable() for c in key)):
        raise ValueError("the API key has characters that no key has; was it copied in full, and without line breaks?")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is a number of seconds, not {timeout!r}")
    if not 0 < timeout < 1e9:
        raise ValueError(f"timeout is a number of seconds above 0, not {timeout!r}")
    if isinstance(retries, bool) or not isinstance(retries, int):
        raise TypeError(f"retries is a whole number, not {retries!r}")
    if retries < 0:
        raise ValueError(f"retries is 0 or more, not {retries}")
    if user_agent is not None and not text("user_agent", user_agent).isprintable():
        raise ValueError("user_agent has characters that no header may have")
    url = _checked_url(url or DEFAULT_URL)
    agent = f"pandastack-python/{__version__}"
    return Settings(
        base_url=url,
        key=key or "",
        timeout=float(timeout),
        retries=retries,
        user_agent=f"{user_agent} {agent}" if user_agent else agent,
        http2=_use_http2(url, http2),
    )


def _one(first: str, a: str | None, second: str, b: str | None) -> str | None:
    if a and b and a != b:
        raise ValueError(f"{first} and {second} are two names of one thing and differ; pass one of them")
    return a or b


def _found(url: str | None, key: str | None) -> tuple[str | None, str | None]:
    """Fills in from the environment and the config file what was not passed."""
    url = url or os.environ.get("PANDASTACK_API")
    key = key or os.environ.get("PANDASTACK_API_KEY") or os.environ.get("PANDASTACK_TOKEN")
    if url and key:
        return url, key
    path = os.path.join(os.path.expanduser("~"), ".config", "pandastack", "config.json")
    try:
        with open(path, encoding="utf-8") as f:
            config: Any = json.load(f)
    except FileNotFoundError:
        return url, key
    except OSError as e:
        raise ValueError(f"the config file {path} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise ValueError(f"the config file {path} is not JSON; correct it, or remove it and run `pandastack auth login`") from e

    def first(*names: str) -> str | None:
        for name in names:
            value = config.get(name) if isinstance(config, dict) else None
            if isinstance(value, str) and value:
                return value
        return None

    return url or first("api", "api_url", "apiUrl", "base_url"), key or first("api_key", "apiKey", "token")


def _checked_url(url: str) -> str:
    wrong = ValueError(f"the server's address {url!r} is not an http or https URL; write it in full, such as {DEFAULT_URL}")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise wrong from None
    if not usable or not url.isascii() or any(c.isspace() for c in url):
        raise wrong
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the server's address may have no user, query or fragment")
    return url.rstrip("/")


def _use_http2(url: str, wanted: bool | None) -> bool:
    """HTTP/2 is spoken where TLS offers it and the h2 package is there."""
    if wanted is False or not url.startswith("https://"):
        return False
    from importlib.util import find_spec

    there = find_spec("h2") is not None
    if wanted and not there:
        raise ValueError("http2=True needs the h2 package: pip install 'pandastack[http2]'")
    return there
