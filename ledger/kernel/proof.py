"""Prove that an instance is gone: by absence from listings, a final status, a timeout or an operator's write-off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Absence:
    """Record one complete listing of the right account without the instance. Minted by `Listing.absence`."""

    at: datetime
    account: str


@dataclass(frozen=True, slots=True)
class AbsenceRule:
    """Say how many complete listings, how far apart and over how long, prove that an instance is gone."""

    count: int = 3
    apart: timedelta = timedelta(seconds=10)
    over: timedelta = timedelta(seconds=60)


#: How long after a pushed timeout a batch run counts as ended: the cloud's own slack and time in its queue.
TIMEOUT_MARGIN = timedelta(minutes=30)


#: The shortest time for which a network volume is looked for before it counts as gone: it may hold years of work.
VOLUME_ABSENCE_OVER = timedelta(hours=1)


class ProofKind(StrEnum):
    ABSENCE = "absence"
    OWN_READS = "own_reads"
    FINAL_STATUS = "final_status"
    TIMEOUT = "timeout"
    WRITE_OFF = "word"


@dataclass(frozen=True, slots=True)
class ProofOfEnd:
    """Prove that an instance is gone; the move to GONE demands it.

    `from_absences` serves most clouds, `from_own_reads` network volumes, `from_final_status` and `from_timeout` a
    batch cloud. `from_write_off` is an
    operator's, for an account that no key here opens any more.
    """

    kind: ProofKind
    account: str
    at: datetime
    evidence: tuple[datetime, ...] = field(default=())

    @classmethod
    def from_absences(
        cls, absences: Sequence[Absence], rule: AbsenceRule, *, last_heartbeat_at: datetime | None
    ) -> ProofOfEnd | None:
        """Make a proof of absences, or None while they do not satisfy `rule` or a fresher heartbeat contradicts them.

        Only listings of one account count, only those after the last heartbeat, and only those at least `rule.apart`
        from the one counted before.
        """
        silent = (a.at for a in absences if last_heartbeat_at is None or a.at > last_heartbeat_at)
        counted = _spaced(sorted(silent), rule.apart)
        if len({a.account for a in absences}) != 1 or len(counted) < rule.count:
            return None
        if counted[-1] - counted[0] < rule.over:
            return None
        return cls(ProofKind.ABSENCE, absences[0].account, counted[-1], tuple(counted))

    @classmethod
    def from_own_reads(cls, misses: Sequence[Absence], rule: AbsenceRule) -> ProofOfEnd | None:
        """Make a proof of reads by a network volume's own id that all missed it; None while they are too few.

        No listing is among them: one may lack a volume that is there.
        """
        proof = cls.from_absences(misses, rule, last_heartbeat_at=None)
        return None if proof is None else cls(ProofKind.OWN_READS, proof.account, proof.at, proof.evidence)

    @classmethod
    def from_final_status(cls, account: str, at: datetime) -> ProofOfEnd:
        """Make a proof of a final status that a batch cloud's run reported."""
        return cls(ProofKind.FINAL_STATUS, account, at, (at,))

    @classmethod
    def from_write_off(cls, account: str, at: datetime) -> ProofOfEnd:
        """Make a proof of an operator's write-off.

        No key that is set up opens the account, so nothing here can look.
        """
        return cls(ProofKind.WRITE_OFF, account, at, (at,))

    @classmethod
    def from_timeout(
        cls, account: str, pushed_at: datetime, timeout: timedelta, now: datetime, *, margin: timedelta = TIMEOUT_MARGIN
    ) -> ProofOfEnd | None:
        """Make a proof of the timeout that a batch run was pushed with; None until `margin` after it.

        ValueError for a timeout that is not positive: a run that was pushed without one never ends by time.
        """
        if timeout <= timedelta(0):
            raise ValueError("a run without a positive timeout is never over by time; give the timeout that was pushed")
        over_at = pushed_at + timeout + margin
        return cls(ProofKind.TIMEOUT, account, over_at, (pushed_at, now)) if now >= over_at else None


def _spaced(times: Iterable[datetime], apart: timedelta) -> list[datetime]:
    kept: list[datetime] = []
    for at in times:
        if not kept or at - kept[-1] >= apart:
            kept.append(at)
    return kept
