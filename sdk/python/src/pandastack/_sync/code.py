# Made by tools/unasync.py from _async/code.py. Do not edit.

"""Code in interpreters that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping

from .. import _check, _core
from .._code import CodeCollector
from .._core import Request
from .._generated.models import CodeContext, CodeEvent, CodeRun, ContextList
from .stream import Stream

if TYPE_CHECKING:
    import httpx

    from ..errors import PandastackError
    from .transport import Transport


class CodeStream(Stream[CodeEvent]):
    """What an execution does, as it does it.

    Iterating gives CodeEvent. After the end, run has all of it, as run_code
    gives it, with the first 8 MiB of each stream. Closing it early interrupts
    the code; the context keeps its state.
    """

    def __init__(self, transport: Transport, response: httpx.Response) -> None:
        self._collector = CodeCollector()
        self._failure: PandastackError | None = None
        super().__init__(transport, response, self._collector.take)

    @property
    def run(self) -> CodeRun | None:
        """What came of the code; None until it has ended."""
        return self._collector.run if self._collector.ended else None

    def _take(self, name: str, event: Any) -> CodeEvent | None:
        if name == "error":
            self._failure = _core.event_error(event)
            return None
        return self._collector.take(event)

    def _finish(self) -> None:
        if not self._collector.ended:
            raise self._failure or _core.cut_short()

    def wait(self) -> CodeRun:
        """Reads to the end and gives all of it."""
        for _ in self:
            pass
        if not self._collector.ended:
            raise _core.cut_short()
        return self._collector.run


class Contexts:
    """The code contexts of a sandbox: interpreters that keep what was defined.

    Every language has one that is shared, which run_code uses unless it is
    given another; those that create makes stand beside it. A context is named
    by its id or by the CodeContext itself; one that is gone is a NotFoundError
    (context.not_found).
    """

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        self._transport = transport
        self._base = ("v1", "sandboxes", sandbox_id, "contexts")

    def create(
        self, language: str | None = None, *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> CodeContext:
        """Starts an interpreter.

        language: python (default), javascript, typescript or bash. cwd: default
        the home directory. env: beside the sandbox's own.
        """
        body: dict[str, Any] = {}
        if language is not None:
            body["language"] = _check.text("language", language, empty=False)
        if cwd is not None:
            body["cwd"] = _check.path("cwd", cwd)
        if env is not None:
            body["env"] = _check.labels("env", env)
        request = Request("POST", self._base, json=body, timeout=_core.SLOWER)
        return self._transport.call(request, CodeContext.from_dict)

    def list(self) -> List[CodeContext]:
        """Gives the contexts, oldest first."""
        return (self._transport.call(Request("GET", self._base), ContextList.from_dict)).contexts

    def delete(self, context: str | CodeContext) -> None:
        """Ends a context with what it runs."""
        self._transport.do(Request("DELETE", self._path(context)))

    def restart(self, context: str | CodeContext) -> None:
        """Gives a context a new interpreter, without any state."""
        self._transport.do(Request("POST", (*self._path(context), "restart"), timeout=_core.SLOWER))

    def interrupt(self, context: str | CodeContext) -> None:
        """Stops the code that a context runs, if any does, as Ctrl-C would."""
        self._transport.do(Request("POST", (*self._path(context), "interrupt")))

    def _path(self, context: object) -> tuple[str, ...]:
        return (*self._base, _check.identifier("context", context))
