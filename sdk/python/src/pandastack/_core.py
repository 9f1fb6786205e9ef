"""What the sync and the async transport have in common: everything but waiting.

A request is tried again only where that cannot do anything twice: a GET when
the server does not answer or says that trying again can help, any other when
no connection could be made, so that nothing of it was sent. The handshake of a
WebSocket is such another: it is a GET, but the one of a terminal runs a command.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any, Callable, Mapping, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from ._config import Settings
from .errors import PandastackError, TimeoutError, coded

if TYPE_CHECKING:
    import ssl

    import httpx

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0
SLOW_TIMEOUT = 300.0  # what makes or moves a whole sandbox may take this long
STREAM_SILENCE = 60.0  # a server sends something on an idle stream every 15 s
ERROR_BODY_LIMIT = 1 << 20
CHUNK = 64 << 10

# Connections that are kept while idle. The pool looks at all of them, and for
# each at all others, before every request: with many it costs more than
# connecting again.
KEPT_CONNECTIONS = 32

# Waits between tries: the base doubles each time, less a random part. The
# server's Retry-After is followed up to the maximum.
RETRY_BASE = 0.1
RETRY_MAX = 5.0

SLOWER = 0.0  # a Request.timeout: SLOW_TIMEOUT, or the client's if that is longer
ENDLESS = -1.0  # a Request.timeout: the answer comes when it comes


class Request:
    """One call of the API.

    path holds segments, not yet escaped. content is bytes, or an iterator that
    is asked once, and length its length where that is known; headers are more
    of them. timeout is in seconds for the answer; None is the client's. key is
    the Idempotency-Key: the server does it once, however often it is sent.
    """

    __slots__ = ("method", "path", "query", "json", "content", "length", "headers", "accept", "timeout", "key")

    def __init__(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        content: Any = None,
        length: int | None = None,
        headers: Mapping[str, str] | None = None,
        accept: str = "application/json",
        timeout: float | None = None,
        key: str | None = None,
    ) -> None:
        self.method: str = method
        self.path: tuple[str, ...] = path
        self.query: Mapping[str, Any] | None = query
        self.json: Any = json
        self.content: Any = content
        self.length: int | None = length
        self.headers: Mapping[str, str] | None = headers
        self.accept: str = accept
        self.timeout: float | None = timeout
        self.key: str | None = key


class Once:
    """Remembers whether anything of a body was taken."""

    started = False


def new_key() -> str:
    """A new Idempotency-Key."""
    import uuid

    return uuid.uuid4().hex


def url_of(s: Settings, r: Request) -> str:
    url = s.base_url + "/" + "/".join(quote(p, safe="") for p in r.path)
    return f"{url}?{urlencode(r.query, doseq=True)}" if r.query else url


def headers_of(s: Settings, r: Request) -> dict[str, str]:
    # The server compresses nothing, and a file that is compressed must arrive
    # as it is.
    h = {"User-Agent": s.user_agent, "Accept": r.accept, "Accept-Encoding": "identity"}
    if s.key:
        h["Authorization"] = "Bearer " + s.key
    elif r.path[0] == "v1":
        raise coded(
            "auth.invalid_token",
            "there is no API key",
            hint="Set PANDASTACK_API_KEY, pass api_key=, or run `pandastack auth login`; the first key is in admin.key of the server's data directory.",
        )
    if r.key is not None:
        h["Idempotency-Key"] = r.key
    if r.headers is not None:
        h.update(r.headers)
    if r.json is not None:
        h["Content-Type"] = "application/json"
    elif r.content is not None:
        h["Content-Type"] = "application/octet-stream"
        if r.length is not None:
            h["Content-Length"] = str(r.length)
    return h


def body_of(r: Request) -> Any:
    if r.json is not None:
        try:
            return json.dumps(r.json, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            raise ValueError("a text has surrogates, which are not characters") from None
    return r.content


def timeouts_of(s: Settings, r: Request) -> dict[str, float | None]:
    read: float | None = s.timeout if r.timeout is None else r.timeout
    if r.timeout == SLOWER:
        read = max(s.timeout, SLOW_TIMEOUT)
    elif r.timeout == ENDLESS:
        read = None
    return {"connect": min(s.timeout, CONNECT_TIMEOUT), "read": read, "write": s.timeout, "pool": None}


def keepalive_options() -> list[tuple[int, int, int]]:
    """Socket options that notice a server which is gone without a word within about a minute."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def tls_context(s: Settings) -> ssl.SSLContext:
    """The context for TLS. Reading the certificates takes long, so it is left where there is no TLS."""
    import ssl

    if s.base_url.startswith("https://"):
        import httpx

        return httpx.create_ssl_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def proxy_of(s: Settings) -> str | None:
    """The proxy that the environment names for the server, if any."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(s.base_url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc) or proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else "http://" + proxy


def answer_error(s: Settings, response: httpx.Response, body: bytes) -> PandastackError:
    """The error of an answer that is not a success."""
    status = response.status_code
    try:
        e = json.loads(body)["error"]
        code, message = e["code"], e["message"]
        if not (isinstance(code, str) and isinstance(message, str) and code):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        return not_a_server(s, response)
    hint = e.get("hint") if isinstance(e.get("hint"), str) else ""
    if code in ("request.unknown_field", "request.method_not_allowed", "request.not_found"):
        hint = "The server may be older than this package and not know it yet: compare client.version() with pandastack.__version__."
    details = e.get("details") if isinstance(e.get("details"), dict) else {}
    request_id = e.get("request_id") or response.headers.get("X-Request-Id", "")
    return coded(
        code, message, hint=hint, request_id=str(request_id), status_code=status, details=details, response=response
    )


def event_error(e: Any) -> PandastackError:
    """The error that ended a stream: bare, or within an envelope."""
    if isinstance(e, dict) and isinstance(e.get("error"), dict):
        e = e["error"]
    if not isinstance(e, dict) or not isinstance(e.get("code"), str):
        return coded("internal", "the server ended the stream with an error")
    details = e.get("details") if isinstance(e.get("details"), dict) else {}
    return coded(
        e["code"],
        str(e.get("message", "")),
        hint=str(e.get("hint", "")),
        request_id=str(e.get("request_id", "")),
        details=details,
    )


def not_a_server(s: Settings, response: httpx.Response) -> PandastackError:
    """The error of an answer that no PandaStack server gives."""
    status = response.status_code
    location = response.headers.get("Location")
    if 300 <= status < 400 and location:
        return coded(
            "client.not_a_pandastack_server",
            f"{s.base_url} redirects to {location}",
            hint="Use the address it redirects to as PANDASTACK_API.",
            status_code=status,
            response=response,
        )
    kind = response.headers.get("Content-Type", "").split(";")[0] or "no content type"
    return coded(
        "client.not_a_pandastack_server",
        f"what answers at {s.base_url} is not a PandaStack server (status {status}, {kind})",
        status_code=status,
        response=response,
    )


def unknown_answer(s: Settings, response: httpx.Response | None = None) -> PandastackError:
    return coded(
        "client.not_a_pandastack_server",
        f"the answer of {s.base_url} is not what this version of the package knows",
        hint="Compare client.version() with pandastack.__version__, and check PANDASTACK_API.",
        response=response,
    )


def cut_short(hint: str = "The command may still have run; look at the sandbox's logs.") -> PandastackError:
    return coded("client.server_unreachable", "the server closed the connection before the command ended", hint=hint)


def close_error(code: int | None, reason: str) -> PandastackError | None:
    """The error with which a server closed a WebSocket: its reason is `code: message`."""
    name, colon, message = reason.partition(": ")
    if code in (None, 1000, 1001, 1005) or not colon or not name.replace(".", "").replace("_", "").isalpha():
        return None
    return coded(name, message)


def decoded(s: Settings, response: httpx.Response, read: Callable[[Any], T]) -> T:
    """Reads a JSON answer."""
    if response.headers.get("Content-Type", "").split(";")[0].strip() != "application/json":
        raise not_a_server(s, response)
    try:
        return read(json.loads(response.content))
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise unknown_answer(s, response) from e


def mcp_config(s: Settings, path: tuple[str, ...]) -> dict[str, Any]:
    """What an MCP client needs to know to use the server."""
    headers = {"Authorization": headers_of(s, Request("POST", ("v1",)))["Authorization"]}
    return {"type": "http", "url": url_of(s, Request("POST", path)), "headers": headers}


def is_kind(response: httpx.Response, kind: str) -> bool:
    return bool(response.headers.get("Content-Type", "").split(";")[0].strip() == kind)


def no_answer(s: Settings, waited: float | None) -> TimeoutError:
    after = f" within {waited:g} s" if waited else ""
    return TimeoutError(
        f"the server at {s.base_url} did not answer{after}",
        code="request.timeout",
        hint="Allow more time (timeout= of the client), or see whether the server is overloaded.",
    )


def nothing_came(waited: float | None) -> TimeoutError:
    """The error of a caller who waits for something that comes when it comes."""
    return TimeoutError(f"nothing came within {waited or 0:g} s", code="request.timeout", hint="It goes on; wait again.")


def transport_error(s: Settings, e: Exception, waited: float | None = None) -> PandastackError:
    """Gives a failure to send or receive its class."""
    import httpx

    if isinstance(e, httpx.TimeoutException) and not isinstance(e, httpx.ConnectTimeout):
        return no_answer(s, waited)
    text = str(e)
    if isinstance(e, httpx.RemoteProtocolError) and "illegal" in text or "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        scheme = urlsplit(s.base_url).scheme
        return coded("client.not_a_pandastack_server", f"what answers at {s.base_url} does not speak {scheme}")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return coded(
            "client.server_unreachable",
            f"the certificate of the server at {s.base_url} is not trusted: {text.split('failed: ')[-1].split(' (_ssl')[0]}",
            hint="Use the name that the certificate has, or set SSL_CERT_FILE to a file with its issuer's certificate.",
        )
    return coded("client.server_unreachable", f"no connection to the server at {s.base_url}: {_reason(e)}")


def _reason(e: Exception) -> str:
    """The part of a network error that a person needs."""
    import httpx

    text = str(e)
    cause: BaseException | None = e
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, socket.gaierror):
            return "its name does not resolve"
        cause = cause.__cause__ or cause.__context__
    if isinstance(e, httpx.ConnectTimeout):
        return "it does not answer"
    if "All connection attempts failed" in text:
        return "connection refused"
    if isinstance(e, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
        return "the connection ended before the answer did"
    return text or type(e).__name__


def wait_before_retry(
    s: Settings, r: Request, attempt: int, once: Once, failure: Exception, error: PandastackError
) -> float | None:
    """Seconds until the next try, or None where there is none."""
    import random

    import httpx

    if attempt >= s.retries or error.code == "client.not_a_pandastack_server":
        return None
    wait = RETRY_BASE * 2 ** min(attempt, 5)
    wait -= random.random() * wait / 2
    if isinstance(failure, (httpx.ConnectError, httpx.ConnectTimeout)):
        return None if once.started else wait
    if r.key is None and (r.method != "GET" or (r.headers is not None and "Upgrade" in r.headers)):
        return None
    if isinstance(failure, httpx.TransportError):
        return None if isinstance(failure, httpx.TimeoutException) else wait
    # A fault of the server itself rarely heals within a second.
    soon = error.status_code == 429 and error.code == "rate_limit.api"
    soon = soon or (error.status_code == 503 and error.retryable)
    if not soon:
        return None
    wait = max(wait, _retry_after(error))
    return wait if wait <= RETRY_MAX else None


def _retry_after(error: PandastackError) -> float:
    if error.retry_after is not None:
        return error.retry_after
    header = error.response.headers.get("Retry-After", "") if error.response is not None else ""
    return float(header) if header.isdigit() else 0.0
