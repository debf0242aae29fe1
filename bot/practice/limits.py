"""Rate limits per method and per channel, as token buckets. Tiers: Slack's page on Web API rate limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bot.practice.model import ApiError
from ledger.kernel.clock import Clock

PER_MINUTE: Final = {1: 1, 2: 20, 3: 50, 4: 100}
MINUTE_S: Final = 60.0
CHANNEL_INTERVAL_S: Final = 1.0


class TooManyRequests(ApiError):
    """HTTP 429 with `Retry-After` in whole seconds."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__("ratelimited")
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float


class RateLimits:
    """Off, nothing is ever refused. Strict, every bucket starts full and holds one minute's worth of calls."""

    def __init__(self, clock: Clock, *, strict: bool) -> None:
        self.strict = strict
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def method(self, name: str, tier: int) -> None:
        """Count one call of a method. Raises `RateLimited`. Tier 0 has no limit of its own."""
        if tier:
            capacity = float(PER_MINUTE[tier])
            self._take(f"method:{name}", capacity, capacity / MINUTE_S)

    def post(self, channel: str) -> None:
        """Count one message posted to a channel: one a second. Raises `RateLimited`."""
        self._take(f"channel:{channel}", 1.0, 1.0 / CHANNEL_INTERVAL_S)

    def _take(self, key: str, capacity: float, per_s: float) -> None:
        if not self.strict:
            return
        now_s = self._clock.monotonic()
        bucket = self._buckets.setdefault(key, _Bucket(capacity, now_s))
        bucket.tokens = min(capacity, bucket.tokens + (now_s - bucket.at_s) * per_s)
        bucket.at_s = now_s
        if bucket.tokens < 1:
            raise TooManyRequests(max(1, math.ceil((1 - bucket.tokens) / per_s)))
        bucket.tokens -= 1
