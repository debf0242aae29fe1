"""Read `idle=30m`: how long a machine may be idle before it ends, even while its command runs."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from bot.rules.grammar.bad_word import BadWord, show

#: Check-ins come every minute, so a shorter time would end machines by accident.
LEAST_S: Final = 300
MOST_S: Final = 86_400


def read_idle(text: str, _policy: object) -> dict[str, Any]:
    """Read `30m`, `45`, `2h` (a bare number is minutes). Raises `BadWord`."""
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,2})?)(m|min|minutes?|h|hours?)?", text.lower().replace(" ", ""))
    seconds = int(Decimal(found[1]) * (3600 if (found[2] or "m").startswith("h") else 60)) if found else 0
    if not LEAST_S <= seconds <= MOST_S:
        raise BadWord(f"{show(text)} is not a time from 5m to 24h; write idle=30m.")
    return {"idle_s": seconds}
