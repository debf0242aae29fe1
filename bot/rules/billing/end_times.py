"""Date the end of an instance: the earliest and the latest moment that are known, and the likely one between them.

The likely end is booked. What the time until the latest one can have cost is unsettled: budgets, caps and FOCUS count
it until a bill or 30 days settle it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

#: An instance that was not listed for longer than this many reconcile passes may have done anything meanwhile.
BLIND_SWEEPS = 10
#: It may have failed unseen for so many passes before its end was ordered, even where its cloud was listed as usual.
UNSEEN_SWEEPS = 2
#: A shorter range of an end tells people nothing.
SHORTEST_RANGE = timedelta(minutes=10)


class Evidence(Protocol):
    """What the ledger stores about an end; the columns of an instance say what each one is."""

    absent_at: list[str]
    trouble_at: datetime | None
    worked_at: datetime | None
    terminate_asked_at: datetime | None
    terminate_called_at: datetime | None
    terminate_acked_at: datetime | None
    latest_end_at: datetime | None


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """When an instance ended: not before `earliest`, not after `latest`, and most likely at `likely`."""

    earliest: datetime
    likely: datetime
    latest: datetime

    @property
    def is_range(self) -> bool:
        """Whether the range is long enough that people read it beside the likely end."""
        return self.latest - self.earliest > SHORTEST_RANGE


def carried_out(called_at: datetime, shown_at: datetime, lag: timedelta) -> bool:
    """Whether a call may have ended an instance that its cloud still had at `shown_at`: its listings lag so long."""
    return shown_at - called_at <= lag


def is_dated(row: Evidence) -> bool:
    """Whether a cloud's reply says when a call ended an instance; a later call says that none does."""
    called_at, acked_at = row.terminate_called_at, row.terminate_acked_at
    return acked_at is not None and (called_at is None or called_at <= acked_at)


def likely_end(
    row: Evidence, absent_at: Iterable[datetime], heartbeat_at: datetime | None = None, lag: timedelta = timedelta()
) -> datetime:
    """Return when an instance ended that is proved to be gone: with the call that ended it, or by the first absence.

    A heartbeat contradicts the absences and the calls before it. One that its cloud accepted may have taken `lag`.
    """
    lost_at = min(at for at in absent_at if heartbeat_at is None or at > heartbeat_at)
    ended_at = row.terminate_acked_at or row.terminate_called_at or lost_at
    if heartbeat_at is not None and heartbeat_at - ended_at > (lag if is_dated(row) else timedelta()):
        return lost_at
    return min(ended_at, lost_at)


def latest_end(row: Evidence, likely: datetime, proved_at: datetime | None = None) -> datetime:
    """Return when an instance that is booked until `likely` had ended for certain: by the proof at `proved_at`.

    A reply to the call dates the end, and a call without one dates nothing. A row of an earlier release has no proof:
    the last absence that is stored stands for it.
    """
    if proved_at is None and row.latest_end_at is not None:
        return row.latest_end_at
    called_at, acked_at = row.terminate_called_at, row.terminate_acked_at
    looked_at = proved_at or max(map(datetime.fromisoformat, row.absent_at), default=None)
    if acked_at is not None and is_dated(row) and likely <= acked_at:
        return max(likely, min(acked_at, looked_at or acked_at))
    return max(likely, proved_at or max(looked_at or likely, called_at or likely))


def known_end(row: Evidence, likely: datetime, sweep_s: float) -> KnownEnd:
    """Return the earliest and the latest end that is known of an instance that is booked until `likely`.

    A failed one may have ended from its failure on, which was some time between two listings. Nothing shows whether any
    other one worked between the last listing and its end, or the order to end it.
    """
    worked_at = row.worked_at or row.trouble_at
    ordered_at = min(row.terminate_asked_at or likely, worked_at or likely, likely)
    sweeps = UNSEEN_SWEEPS if worked_at is None else BLIND_SWEEPS
    earliest = min(ordered_at, (worked_at or ordered_at) - timedelta(seconds=sweeps * sweep_s))
    return KnownEnd(earliest, likely, latest_end(row, likely))


def after_reply(
    row: Evidence,
    called_before: datetime | None,
    called_at: datetime,
    now: datetime,
    lag: timedelta,
    *,
    was_there: bool,
    alive_at: datetime | None,
) -> Mapping[str, Any]:
    """Return the columns that follow from a cloud's reply at `now` to the call at `called_at` to end an instance.

    The first reply counts, and a later one where it shows that the call before was not carried out. An instance that
    the cloud accepts to end existed when it was called, whatever the listings before lacked. One that it does not know
    ended before: with the call before (`called_before`), if that may have had an effect, or else after `alive_at`.
    """
    if row.terminate_acked_at is not None:
        if not was_there:
            return {}
        # Perhaps only this call ended it, which then counts in the most that it can have cost.
        is_done = row.absent_at or carried_out(row.terminate_acked_at, called_at, lag)
        return {"terminate_called_at": called_at, **({} if is_done else {"terminate_acked_at": now})}
    if was_there:
        # Those since the call stay: they show that it ended, even if this process stood still with the reply.
        since = [at for at in row.absent_at if datetime.fromisoformat(at) >= called_at]
        return {"terminate_acked_at": now, "absent_at": since}
    if called_before is not None:
        # The later time of this call says that no reply dates the end. A clock in doubt has not noted it before.
        return {"terminate_acked_at": called_before, "terminate_called_at": called_at}
    return {"terminate_acked_at": now, "trouble_at": row.trouble_at or min(alive_at or now, now)}
