"""Times as the server writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:Z|([+-])(\d\d):(\d\d))")


def parse_time(text: str) -> datetime:
    """Reads an RFC 3339 time, of which the microseconds are kept."""
    m = _RFC3339.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not a time")
    zone = timezone.utc
    if m[3]:
        offset = timedelta(hours=int(m[4]), minutes=int(m[5]))
        zone = timezone(-offset if m[3] == "-" else offset)
    fraction = (m[2] or "0").ljust(6, "0")[:6]
    return datetime.fromisoformat(m[1]).replace(microsecond=int(fraction), tzinfo=zone)
