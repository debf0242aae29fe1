"""How often somebody may call: a bucket of tokens per key, and a smaller one per address for wrong keys.

With several replicas the buckets of keys stand in the ledger, and each replica takes some tokens at a time, so that a
call does not cost a write. Wrong keys are counted by each process for itself.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from ledger.core import rate_limits
from ledger.engine.db import Database
from ledger.kernel.clock import Clock

#: Buckets of callers that were not heard of for longest are forgotten; a full bucket is the same as none.
REMEMBERED = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """The answer to one call: may it go on, how many more may follow now, and when the next is allowed (seconds)."""

    allowed: bool
    limit: int
    remaining: int
    retry_after_s: int

    @property
    def headers(self) -> dict[str, str]:
        """What the caller is told with every answer."""
        told = {"RateLimit-Limit": str(self.limit), "RateLimit-Remaining": str(self.remaining)}
        return told if self.allowed else {**told, "Retry-After": str(self.retry_after_s)}


class RateLimiter:
    """`per_minute` calls a minute on average, and as many at once."""

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._clock = clock
        self._limit = per_minute
        self._per_s = per_minute / 60
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, caller: str) -> Allowance:
        """Count one call of `caller`."""
        bucket = self._filled(caller)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1:
            return Allowance(False, self._limit, 0, max(math.ceil((1 - bucket.tokens) / self._per_s), 1))
        bucket.tokens -= 1
        return Allowance(True, self._limit, int(bucket.tokens), 0)

    def _filled(self, caller: str) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(caller, _Bucket(float(self._limit), now))
        bucket.tokens = min(bucket.tokens + (now - bucket.at) * self._per_s, float(self._limit))
        bucket.at = now
        return bucket


#: A replica takes this share of a minute's tokens at a time.
LEASE_SHARE = 20
MINUTE = timedelta(minutes=1)


class SharedLimiter:
    """The same for all replicas of a deployment together. While the ledger cannot be asked each counts for itself."""

    def __init__(self, db: Database, clock: Clock, per_minute: int) -> None:
        self._db = db
        self._clock = clock
        self._limit = per_minute
        self._lease = max(per_minute // LEASE_SHARE, 1)
        self._left: OrderedDict[str, int] = OrderedDict()
        self._alone = RateLimiter(clock, per_minute)

    async def take(self, caller: str) -> Allowance:
        """Count one call of `caller`. What remains is what this replica has in hand: there is at least as much."""
        left = self._left.get(caller, 0)
        if left < 1:
            every = MINUTE * self._lease / self._limit
            try:
                wait, taken = await rate_limits.take(
                    self._db,
                    f"api/{caller}",
                    self._clock.now(),
                    every=every,
                    ahead=MINUTE - every,
                    patience=timedelta(0),
                )
            except rate_limits.TurnsUnavailable:
                return self._alone.take(caller)
            if not taken:
                return Allowance(False, self._limit, 0, max(math.ceil(wait.total_seconds()), 1))
            left = self._left.get(caller, 0) + self._lease
        self._left[caller] = left - 1
        self._left.move_to_end(caller)
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        return Allowance(True, self._limit, left - 1, 0)
