"""How long a machine may be idle before it ends, even while its command runs: `idle=30m`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from bot.rules.jobs.facet import Detail, Fields, JobFacet, Key, NumberOrText, Word
from bot.rules.values.bad_word import BadWord, show
from bot.rules.values.phrases import hours

#: Check-ins come every minute, so a shorter time would end machines by accident.
LEAST_S: Final = 300
MOST_S: Final = 86_400


@dataclass(frozen=True, kw_only=True)
class IdleFields:
    """For how long its machine may idle before it ends, even while its command runs."""

    #: Seconds; None: nobody wrote that.
    idle_s: int | None = None


def read_idle(text: str, _policy: object) -> Fields:
    """Read `30m`, `45`, `2h` (a bare number is minutes). Raises `BadWord`."""
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,2})?)(m|min|minutes?|h|hours?)?", text.lower().replace(" ", ""))
    seconds = int(Decimal(found[1]) * (3600 if (found[2] or "m").startswith("h") else 60)) if found else 0
    if not LEAST_S <= seconds <= MOST_S:
        raise BadWord(f"{show(text)} is not a time from 5m to 24h; write idle=30m.")
    return {"idle_s": seconds}


def _details(job: IdleFields) -> Iterator[Detail]:
    if job.idle_s:
        yield Detail("ends when idle for", hours(Decimal(job.idle_s) / 3600))


IDLE = JobFacet(
    fields=IdleFields,
    are_facts=True,
    words=(Word("idle", "TIME", "End when idle for this long, even while a command runs.", "idle=30m", read_idle),),
    keys=(
        Key(
            "idle",
            NumberOrText | None,
            "End the machine when it is idle for this long, even while its command runs: 30m.",
        ),
    ),
    details=_details,
)
