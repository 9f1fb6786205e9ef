"""What comes of running code."""

from __future__ import annotations

from typing import Any

from ._generated.models import CodeEvent, CodeRun
from ._output import Head

KEPT = 8 << 20  # bytes of each stream that a run has, as with the buffered call


class CodeCollector:
    """Puts the events of one execution together to what the buffered call gives."""

    def __init__(self) -> None:
        self.run: CodeRun = CodeRun(stdout="", stderr="", results=[], execution_count=0, duration_ms=0.0)
        self.ended: bool = False
        self._heads = {"stdout": Head(KEPT), "stderr": Head(KEPT)}

    def take(self, said: Any) -> CodeEvent:
        event = CodeEvent.from_dict(said)
        run = self.run
        if event.type in self._heads:
            self._heads[event.type].add((event.text or "").encode("utf-8", "replace"))
        elif event.type == "start":
            run.execution_count = event.execution_count or 0
        elif event.type == "result" and event.result is not None:
            run.results.append(event.result)
            if event.result.is_main_result:
                run.text = event.result.text
        elif event.type == "exception":
            run.error = event.exception
        elif event.type == "end":
            run.duration_ms = event.duration_ms or 0.0
            run.timed_out = event.timed_out
            run.stdout, run.stderr = self._heads["stdout"].text(), self._heads["stderr"].text()
            run.truncated = any(h.truncated for h in self._heads.values())
            self.ended = True
        return event
