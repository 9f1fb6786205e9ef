"""Server-sent events, taken apart as their bytes come."""

from __future__ import annotations

LINE_LIMIT = 8 << 20


class EventParser:
    """Gives the events that are complete. What follows the last one is kept."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[tuple[str, bytes]]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_LIMIT:
            raise ValueError("an event is too long")
        out: list[tuple[str, bytes]] = []
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if not line:
                if self._data:
                    out.append((self._name, b"\n".join(self._data)))
                self._name, self._data = "", []
                continue
            field, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if field == b"data":
                self._data.append(value)
            elif field == b"event":
                self._name = value.decode("utf-8", "replace")
        return out
