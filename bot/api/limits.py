"""How often somebody may call: a bucket of tokens per key, and a smaller one per address for wrong keys.

The buckets are this process's own; with several replicas each counts for itself.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from ledger.values import Clock

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
