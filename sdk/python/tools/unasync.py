"""Makes the sync surface of the async one.

Both have the same names and the same rules; only the async one is written by
hand. What really waits, _io.py, exists twice.

    python tools/unasync.py          # writes src/pandastack/_sync
    python tools/unasync.py --check  # fails if what is there is not current
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "pandastack" / "_async"
TARGET = SOURCE.with_name("_sync")
BY_HAND = {"_io.py"}

RULES = [
    (r'"""The async surface, written by hand\. .*"""', '"""The sync surface, made of the async one by tools/unasync.py."""'),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\baclose\b", "close"),
    (r"\bAwaitable\[([^\]]+)\]", r"\1"),
    (r"\b_async\b", "_sync"),
]


def converted(text: str) -> str:
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    text = text.replace("Iterable[bytes], Iterable[bytes]", "Iterable[bytes]")
    return re.sub(r"^from typing import (.+)$", _once, text, flags=re.M)


def _once(line: re.Match[str]) -> str:
    """Names that have become the same are imported once."""
    return "from typing import " + ", ".join(dict.fromkeys(line[1].split(", ")))


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = 0
    for source in sorted(SOURCE.glob("*.py")):
        if source.name in BY_HAND:
            continue
        text = "# Made by tools/unasync.py from _async/" + source.name + ". Do not edit.\n\n" + converted(source.read_text())
        target = TARGET / source.name
        if target.exists() and target.read_text() == text:
            continue
        stale += 1
        if check:
            print(f"_sync/{source.name} is not current; run python tools/unasync.py", file=sys.stderr)
        else:
            target.write_text(text)
            print(f"wrote _sync/{source.name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
