"""Limit how often a key may call, and how often an address may send a wrong key, with token buckets.

With several replicas the ledger holds the buckets of keys, and each replica takes some tokens at a time, so that a call
does not cost a write. Each process counts wrong keys for itself.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from ledger.core import rate_limits
from ledger.engine.db import Database
from ledger.kernel.clock import Clock

#: Above this number the least recently used buckets are dropped; a full bucket is the same as none.
REMEMBERED = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """The answer of a rate limiter: whether the call is allowed, how many are left, seconds until the next."""

    allowed: bool
    limit: int
    remaining: int
    retry_after_s: int

    @property
    def headers(self) -> dict[str, str]:
        """Return the rate-limit headers of an answer."""
        headers = {"RateLimit-Limit": str(self.limit), "RateLimit-Remaining": str(self.remaining)}
        return headers if self.allowed else {**headers, "Retry-After": str(self.retry_after_s)}


class RateLimiter:
    """Allow `per_minute` calls a minute on average, and as many in one burst."""

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
    """Limit the calls of all replicas together; while the ledger is out of reach each replica counts alone."""

    def __init__(self, db: Database, clock: Clock, per_minute: int) -> None:
        self._db = db
        self._clock = clock
        self._limit = per_minute
        self._lease = max(per_minute // LEASE_SHARE, 1)
        self._left: OrderedDict[str, int] = OrderedDict()
        self._alone = RateLimiter(clock, per_minute)

    async def take(self, caller: str) -> Allowance:
        """Count one call of `caller`.

        `remaining` is what this replica has leased, so the caller has at least as many calls left.
        """
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
