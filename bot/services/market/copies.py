"""Keep a copy of the whole market of each cloud whose first answer is not all of it, so that nobody waits for the rest.

The copy is read call by call, with calls that no person waits for. A share of the cloud's rate limit stays unused. A
question still asks the cloud for the first answer, and the copy adds the offers behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final, NamedTuple

from ledger.kernel.clock import Clock
from providers.completeness import AnswerPart
from providers.contract import Copy, Offer, Provider
from providers.errors import ProviderError, RateLimited
from providers.gpus.constraint import GpuConstraint

#: Each copy is replaced within one and a half of its cloud's rounds. After so many rounds it is stale.
FRESH_ROUNDS: Final = 2.0
#: How long a copy is used at all. An older copy says too little about what is for sale now.
USED_FOR_S: Final = 1_800.0
#: A market is copied no more often than this, and never in more than this share of a cloud's sustained pace.
EVERY_S: Final = 240.0
SHARE: Final = 0.5
#: The pause before the next call after an error.
PAUSE_S: Final = 60.0
#: The group of an adapter's calls that copies may use.
SPARE: Final = "spare"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CopyTerms:
    """Say what is copied: everything up to so many GPUs, on hosts with the CUDA that most jobs need."""

    count_max: int
    disk_gb: int
    cuda_min: Decimal | None = None


@dataclass(frozen=True, slots=True)
class MarketCopy:
    """One finished copy: what was read, under which constraint, and when the first call was made."""

    copy: Copy
    constraint: GpuConstraint
    at: datetime
    at_s: float


class CopiedRest(NamedTuple):
    """The copied offers behind a first answer, when they were read, and whether that is longer ago than usual."""

    offers: tuple[Offer, ...]
    at: datetime
    is_stale: bool


@dataclass(slots=True)
class _Reading:
    """A copy that is being read, one call at a time."""

    spot: bool
    terms: CopyTerms
    constraint: GpuConstraint
    at: datetime
    at_s: float
    rest: Mapping[str, str] | None = None
    offers: dict[tuple[str, bool], Offer] = field(default_factory=dict)


class MarketCopies:
    """Hold the copies of the clouds, and read the next part of one when its turn comes."""

    def __init__(self, providers: Mapping[str, Provider], clock: Clock, price: Callable[[Offer], Offer]) -> None:
        """`price` brings an offer to the price that the market shows."""
        self._providers = providers
        self._clock = clock
        self._price = price
        self._copies: dict[tuple[str, bool], MarketCopy] = {}
        self._reading: dict[str, _Reading] = {}
        #: Cloud → the kinds that wait to be copied in this round, when it began, and its calls so far.
        self._round: dict[str, list[bool]] = {}
        self._began_s: dict[str, float] = {}
        self._calls: dict[str, int] = {}
        #: Cloud → how long its last round took with the pause after it, in seconds.
        self._round_s: dict[str, float] = {}
        #: Cloud → the monotonic second before which nothing is read.
        self._next_s: dict[str, float] = {}

    @property
    def clouds(self) -> tuple[str, ...]:
        """Name the clouds that are copied: those whose first answer may not be everything."""
        return tuple(name for name, one in self._providers.items() if not one.capabilities.market_in_one)

    def of(self, cloud: str, *, spot: bool) -> MarketCopy | None:
        """Return the copy of a cloud's on-demand or spot offers; None where there is none that may be used."""
        copy = self._copies.get((cloud, spot))
        return copy if copy is not None and self._clock.monotonic() - copy.at_s < USED_FOR_S else None

    def rest(
        self, cloud: str, constraint: GpuConstraint, disk_gb: int, spot: bool | None, first: AnswerPart[Offer]
    ) -> CopiedRest | None:
        """Return the copied offers behind a first answer; None where no copy fits."""
        provider = self._providers[cloud]
        kinds = _kinds(provider) if spot is None else (spot,)
        copies = [self.of(cloud, spot=kind) for kind in kinds]
        found: list[Offer] = []
        for copy in copies:
            # Hosts with less disk, or more GPUs, than what was copied are not in it.
            if copy is None or copy.constraint.count_max < constraint.count_max or disk_gb < copy.copy.disk_gb:
                return None
            if not (provider.capabilities.cuda_in_offers or copy.constraint.cuda_min == constraint.cuda_min):
                return None
            found += provider.copied_rest(copy.copy, first, constraint, disk_gb)
        oldest = min((copy for copy in copies if copy is not None), key=lambda copy: copy.at_s)
        fresh_s = FRESH_ROUNDS * self._round_s.get(cloud, EVERY_S)
        is_stale = self._clock.monotonic() - oldest.at_s >= fresh_s
        return CopiedRest(tuple(map(self._price, found)), oldest.at, is_stale)

    def sold(self, offer: Offer) -> None:
        """Drop the copied offers of a machine that was just bought; without what we bought, the copy is still whole.

        An offer without a machine is a kind of GPU, and one machine less says nothing about the others.
        """
        if offer.machine_id is None:
            return
        for name, copy in self._copies.items():
            if name[0] == offer.cloud:
                left = tuple(one for one in copy.copy.offers if one.machine_id != offer.machine_id)
                self._copies[name] = MarketCopy(Copy(left, copy.copy.disk_gb), copy.constraint, copy.at, copy.at_s)

    async def read_next(self, cloud: str, terms: CopyTerms) -> int:
        """Make the next call for the copy of a cloud, if it is time for one; return how many calls were made."""
        if self._clock.monotonic() < self._next_s.get(cloud, 0.0):
            return 0
        reading = self._reading.get(cloud) or self._begin(cloud, terms)
        try:
            answer = await self._providers[cloud].offers(
                reading.constraint, disk_gb=reading.terms.disk_gb, spot=reading.spot, rest=reading.rest, spare=True
            )
        except ProviderError as error:
            self._put_off(cloud, error)
            return 0
        self._calls[cloud] = self._calls.get(cloud, 0) + 1
        reading.offers = {**{(one.key, one.spot): one for one in answer}, **reading.offers}
        reading.rest = answer.rest
        if answer.rest is None:
            self._finish(cloud, reading, whole=answer.completeness.is_complete)
        return 1

    def _begin(self, cloud: str, terms: CopyTerms) -> _Reading:
        now_s = self._clock.monotonic()
        provider = self._providers[cloud]
        if not self._round.get(cloud):
            self._round[cloud], self._calls[cloud] = list(_kinds(provider)), 0
            self._began_s[cloud] = now_s
        cuda_min = None if provider.capabilities.cuda_in_offers else terms.cuda_min
        constraint = GpuConstraint(count_max=terms.count_max, cuda_min=cuda_min)
        reading = _Reading(self._round[cloud].pop(0), terms, constraint, self._clock.now(), now_s)
        self._reading[cloud] = reading
        return reading

    def _finish(self, cloud: str, reading: _Reading, *, whole: bool) -> None:
        del self._reading[cloud]
        if whole:
            copy = Copy(tuple(reading.offers.values()), reading.terms.disk_gb)
            self._copies[cloud, reading.spot] = MarketCopy(copy, reading.constraint, reading.at, reading.at_s)
        if not self._round[cloud]:
            pace = self._providers[cloud].capabilities.rate_limits[SPARE]
            least_s = max(EVERY_S, self._calls[cloud] * pace.every_s / SHARE)
            self._round_s[cloud] = least_s
            self._next_s[cloud] = self._began_s[cloud] + least_s

    def _put_off(self, cloud: str, error: ProviderError) -> None:
        """Wait for the next turn, or longer after an error. Only an error drops what was read."""
        now_s = self._clock.monotonic()
        if isinstance(error, RateLimited) and error.retry_after_s is not None and error.retry_after_s <= PAUSE_S:
            self._next_s[cloud] = now_s + error.retry_after_s
            return
        log.info("the market of %s was not copied: %s", cloud, error.code)
        self._reading.pop(cloud, None)
        self._round.pop(cloud, None)
        pause_s = error.retry_after_s if isinstance(error, RateLimited) and error.retry_after_s else PAUSE_S
        self._next_s[cloud] = now_s + max(pause_s, PAUSE_S)


def _kinds(provider: Provider) -> Collection[bool]:
    """Return what is copied of a cloud, first on-demand offers, which most requests are for."""
    return (False, True) if provider.capabilities.spot else (False,)
