"""What a command writes."""

from __future__ import annotations

import base64
import codecs
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, List, Mapping, Optional

from ._generated.models import ExecResult

KEPT = 16 << 20  # bytes of each stream that a result has, as with the buffered call


@dataclass
class Output:
    """A piece of what a command wrote, as it came.

    stream: stdout or stderr.
    data: The bytes.
    text: The bytes as UTF-8 text. A character cut in two comes with its last byte; what is no UTF-8 is replaced.
    """

    stream: str
    data: bytes
    text: str


class Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int = KEPT) -> None:
        self.limit = limit
        self.size = 0
        self.truncated = False
        self._chunks: Deque[bytes] = deque()

    def add(self, data: bytes) -> None:
        self._chunks.append(data)
        self.size += len(data)
        while self.size > self.limit:
            self.truncated = True
            over = self.size - self.limit
            first = self._chunks.popleft()
            if len(first) > over:
                self._chunks.appendleft(first[over:])
                self.size -= over
            else:
                self.size -= len(first)

    def text(self) -> str:
        return b"".join(self._chunks).decode("utf-8", "replace")


class Head:
    """The first bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.truncated = False
        self._chunks: List[bytes] = []

    def add(self, data: bytes) -> None:
        if len(data) > self.left:
            self.truncated = True
            data = data[: self.left]
        if data:
            self._chunks.append(data)
            self.left -= len(data)

    def text(self) -> str:
        return b"".join(self._chunks).decode("utf-8", "replace")


class Collector:
    """Reads the events of one command: pieces of output, then how it ended."""

    def __init__(self) -> None:
        self.pid: Optional[int] = None
        self.result: Optional[ExecResult] = None
        self._tails = {"stdout": Tail(), "stderr": Tail()}
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._tails}

    def take(self, event: Mapping[str, Any]) -> Optional[Output]:
        """Notes an event and gives the output in it."""
        kind = event["type"]
        if kind in self._tails:
            data = base64.b64decode(event.get("data") or "", validate=True)
            self._tails[kind].add(data)
            return Output(kind, data, self._decoders[kind].decode(data))
        if kind == "start":
            self.pid = event.get("pid")
        elif kind == "exit":
            self.result = self._result(event["result"])
        return None

    def _result(self, said: Dict[str, Any]) -> ExecResult:
        result = ExecResult.from_dict({**said, "stdout": "", "stderr": ""})
        result.stdout = self._tails["stdout"].text()
        result.stderr = self._tails["stderr"].text()
        result.truncated = any(t.truncated for t in self._tails.values())
        return result
