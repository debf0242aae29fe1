"""Read the offers of each cloud: the first answer at once, then the rest. Equal questions share one read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

from bot.rules.pricing.bids import with_margin
from bot.rules.values.phrases import looking_at_rest, not_all_read, offers_from
from bot.services.market.answers import CloudAnswer
from bot.services.market.copies import CopiedRest, MarketCopies
from ledger.kernel import money
from ledger.kernel.clock import Clock
from providers.cloud_names import cloud_title
from providers.completeness import COMPLETE, AnswerPart, Completeness, Extent
from providers.contract import Offer, Provider
from providers.errors import ProviderError, QuotaExceeded, RateLimited, Unavailable
from providers.gpus.constraint import GpuConstraint

FRESH_S: Final = 60.0
#: How long the last good answer of a rate-limited cloud is used instead of a new query.
STRETCHED_S: Final = 300.0
#: The longest time for reading the rest of an answer. At a low rate limit, all pages may take minutes.
REST_MAX_S: Final = 240.0

log = logging.getLogger(__name__)


class Question(NamedTuple):
    """One question to one cloud. Equal questions share one answer."""

    cloud: str
    gpu: GpuConstraint
    disk_gb: int
    spot: bool | None


class CloudOffers(NamedTuple):
    """How a cloud answered, and with which offers."""

    answer: CloudAnswer
    offers: tuple[Offer, ...]


class _Known(NamedTuple):
    """An answer, at which monotonic second it was asked for, and when its last part came.

    The wall clock may be corrected in between.
    """

    answered: CloudOffers
    at_s: float
    ended_s: float
    #: The cloud has more offers, and no caller wanted them.
    has_rest: bool = False


@dataclass(slots=True)
class _Read:
    """A read in progress: its first answer, and the task that reads the rest."""

    first: asyncio.Future[CloudOffers]
    at_s: float
    #: Whether a caller wants the whole answer.
    whole: bool
    task: asyncio.Task[None] = field(init=False)


def in_micros(offer: Offer) -> Offer:
    """Return the offer at a price that the ledger can store: what is shown, approved and bought are the same."""
    offer = with_margin(offer)
    price = money.rate(offer.price_usd_h) if offer.price_usd_h is not None else None
    return offer if price == offer.price_usd_h else replace(offer, price_usd_h=price)


class CloudReads:
    """Query clouds for offers and cache each answer for a minute.

    A cloud that reports a rate limit is queried less: its last good answer is used for five minutes, and again for one
    minute after its next good answer.
    """

    def __init__(self, providers: Mapping[str, Provider], clock: Clock, deadline_s: float) -> None:
        self._providers = providers
        self._clock = clock
        self._deadline_s = deadline_s
        self.copies = MarketCopies(providers, clock, in_micros)
        self._known: dict[Question, _Known] = {}
        #: Rate-limited clouds, and until which monotonic second not to query them at all.
        self._slow: dict[str, float] = {}
        self._reads: dict[Question, _Read] = {}
        #: Every task in progress, also of a read that a newer one has replaced.
        self._tasks: set[asyncio.Task[None]] = set()

    async def first(self, asked: Question, *, since_s: float | None = None, whole: bool = True) -> CloudOffers:
        """Return the first answer to a question, or a whole one where it is known.

        With `since_s`, no copy counts, nor an answer from before that monotonic second; infinity asks the cloud again.
        Without `whole`, only the first answer is read, and the rest comes from a copy or not at all.
        """
        now_s, cloud = self._clock.monotonic(), asked.cloud
        known = self._known.get(asked)
        known = None if known and known.has_rest and whole else known
        if known and now_s - known.ended_s < self._keep_s(cloud) and (since_s is None or known.at_s >= since_s):
            return self._as_it_is_now(known)
        if since_s is None and now_s < self._slow.get(cloud, now_s):
            sentence = f"{cloud} limits its rate of calls, and is read again soon."
            return CloudOffers(_failed(cloud, self._clock.now(), sentence), ())
        result = await asyncio.shield(self._started(asked, since_s, whole=whole).first)
        # The cloud may have reported a rate limit just now: its last answer is better than none.
        if since_s is None and not result.answer.ok and known and now_s - known.ended_s < self._keep_s(cloud):
            return self._as_it_is_now(known)
        return result

    async def rest(self, questions: Iterable[Question], patience_s: float | None) -> None:
        """Wait until the rest of these questions was read, or for `patience_s` real seconds; None has no limit."""
        tasks = [read.task for one in questions if (read := self._reads.get(one)) is not None]
        if tasks and (patience_s is None or patience_s > 0):
            await asyncio.wait(tasks, timeout=patience_s)

    def now(self, asked: Question, first: CloudOffers) -> CloudOffers:
        """Return the best answer so far to a question whose first answer this was.

        What was read for this question counts as current, however long the other clouds take.
        """
        known = self._known.get(asked)
        if known is None or not first.answer.ok:
            return first
        later = known.answered.answer.at > first.answer.at
        goes_on = known.answered.answer.at == first.answer.at and first.answer.completeness.extent is not Extent.STALE
        return known.answered if later or goes_on else first

    def _as_it_is_now(self, known: _Known) -> CloudOffers:
        """Return an answer that is used again. After a minute it says since when it may be wrong."""
        answer, offers = known.answered
        if self._clock.monotonic() - known.ended_s < FRESH_S or not answer.completeness.is_complete:
            return known.answered
        return CloudOffers(replace(answer, completeness=_stale(answer.cloud, answer.copied_at or answer.at)), offers)

    async def close(self) -> None:
        """Cancel the reads that nobody waits for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def sold(self, offer: Offer) -> None:
        """Query the cloud again next time, because this offer was just bought; not while it is rate-limited."""
        self.copies.sold(offer)
        if offer.cloud not in self._slow:
            self._known = {asked: known for asked, known in self._known.items() if asked.cloud != offer.cloud}

    def _keep_s(self, cloud: str) -> float:
        return STRETCHED_S if cloud in self._slow else FRESH_S

    def _started(self, asked: Question, since_s: float | None, *, whole: bool) -> _Read:
        read = self._reads.get(asked)
        if read is not None and (since_s is None or read.at_s >= since_s or not read.first.done()):
            read.whole |= whole
            return read
        first: asyncio.Future[CloudOffers] = asyncio.get_running_loop().create_future()
        read = _Read(first, self._clock.monotonic(), whole)
        read.task = asyncio.create_task(self._read(asked, read, copied=since_s is None), name=f"offers-{asked.cloud}")
        self._reads[asked] = read
        self._tasks.add(read.task)
        read.task.add_done_callback(lambda _: self._ended(asked, read))
        return read

    def _ended(self, asked: Question, read: _Read) -> None:
        self._tasks.discard(read.task)
        if self._reads.get(asked) is read:
            del self._reads[asked]
        if not read.first.done():
            if read.task.cancelled() or (error := read.task.exception()) is None:
                read.first.cancel()
            else:
                read.first.set_exception(error)

    async def _read(self, asked: Question, read: _Read, *, copied: bool) -> None:
        """Read the first answer, and then the rest from the copy of the market, or call by call."""
        (cloud, constraint, disk_gb, spot), first = asked, read.first
        at, at_s = self._clock.now(), self._clock.monotonic()
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._providers[cloud].offers(constraint, disk_gb=disk_gb, spot=spot)
        except TimeoutError:
            sentence = f"{cloud} did not answer within {self._deadline_s:g} s."
            first.set_result(CloudOffers(_failed(cloud, at, sentence, silent=True), ()))
            return
        except ProviderError as error:
            self._slow_down(cloud, error)
            silent = isinstance(error, Unavailable)
            first.set_result(CloudOffers(_failed(cloud, at, f"{cloud}: {error.message}.", silent=silent), ()))
            return
        self._slow.pop(cloud, None)
        found = tuple(map(in_micros, answer))
        copy = (
            self.copies.rest(cloud, constraint, disk_gb, spot, answer) if copied and answer.rest is not None else None
        )
        if copy is not None and not (copy.is_stale and read.whole):
            first.set_result(self._keep_copied(asked, found, copy, at, at_s))
            return
        has_rest, reading = answer.rest is not None, answer.rest is not None and read.whole
        first.set_result(
            self._keep(asked, found, answer.completeness, at, at_s, reading=reading, has_rest=has_rest and not reading)
        )
        if reading:
            await self._read_rest(asked, answer, found, at, at_s, copy)

    async def _read_rest(
        self,
        asked: Question,
        answer: AnswerPart[Offer],
        found: tuple[Offer, ...],
        at: datetime,
        at_s: float,
        copy: CopiedRest | None,
    ) -> None:
        """Read the rest within the cloud's rate limit. When the cloud asks to wait, wait and try again.

        Where it can't be read, an old copy is used, and the answer says how old that is.
        """
        cloud, constraint, disk_gb, spot = asked
        offers = {(one.key, one.spot): one for one in found}
        while answer.rest is not None:
            try:
                answer = await self._providers[cloud].offers(constraint, disk_gb=disk_gb, spot=spot, rest=answer.rest)
            except ProviderError as error:
                wait_s = error.retry_after_s if isinstance(error, RateLimited) else None
                if wait_s is not None and self._clock.monotonic() + wait_s - at_s < REST_MAX_S:
                    await self._clock.sleep(wait_s)
                    continue
                self._slow_down(cloud, error)
                log.info("the rest of %s was not read: %s", cloud, error.code)
                if copy is not None:
                    self._keep_copied(asked, tuple(offers.values()), copy, at, at_s)
                    return
                lacks = Completeness.partial(not_all_read(cloud, error.message))
                self._keep(asked, tuple(offers.values()), lacks, at, at_s, ended_s=self._clock.monotonic())
                return
            offers |= {(one.key, one.spot): one for one in map(in_micros, answer) if (one.key, one.spot) not in offers}
            going_on, now_s = answer.rest is not None, self._clock.monotonic()
            self._keep(asked, tuple(offers.values()), answer.completeness, at, at_s, reading=going_on, ended_s=now_s)

    def _keep_copied(
        self, asked: Question, found: tuple[Offer, ...], copy: CopiedRest, at: datetime, at_s: float
    ) -> CloudOffers:
        """Keep what was read now, and behind it the copied offers. A stale copy is read again when somebody waits."""
        read = {(one.key, one.spot) for one in found}
        offers = (*found, *(one for one in copy.offers if (one.key, one.spot) not in read))
        completeness = _stale(asked.cloud, copy.at) if copy.is_stale else COMPLETE
        ended_s = self._clock.monotonic()
        return self._keep(
            asked, offers, completeness, at, at_s, copied_at=copy.at, ended_s=ended_s, has_rest=copy.is_stale
        )

    def _keep(
        self,
        asked: Question,
        offers: tuple[Offer, ...],
        completeness: Completeness,
        at: datetime,
        at_s: float,
        *,
        reading: bool = False,
        copied_at: datetime | None = None,
        ended_s: float | None = None,
        has_rest: bool = False,
    ) -> CloudOffers:
        """Keep what was read so far, unless a later read has answered already."""
        cloud = asked.cloud
        source = self._providers[cloud].capabilities.source
        listed_on = min((one.listed_on for one in offers if one.listed_on is not None), default=None)
        completeness = Completeness.partial(looking_at_rest([cloud])) if reading else completeness
        answered = CloudOffers(
            CloudAnswer(
                cloud, True, len(offers), at, source=source, listed_on=listed_on, completeness=completeness,
                reading=reading, copied_at=copied_at,
            ),
            offers,
        )  # fmt: skip
        known = self._known.get(asked)
        if known is None or known.at_s <= at_s:
            self._known[asked] = _Known(answered, at_s, at_s if ended_s is None else ended_s, has_rest)
        self._forget_old(self._clock.monotonic())
        return answered

    def _slow_down(self, cloud: str, error: ProviderError) -> None:
        """Query a cloud less after a rate limit, and not before the time that it names."""
        if isinstance(error, RateLimited | QuotaExceeded):
            pause_s = min(getattr(error, "retry_after_s", None) or 0.0, STRETCHED_S)
            self._slow[cloud] = self._clock.monotonic() + pause_s

    def _forget_old(self, now_s: float) -> None:
        old = [asked for asked, known in self._known.items() if now_s - known.ended_s >= STRETCHED_S]
        for asked in old:
            del self._known[asked]


def _stale(cloud: str, since: datetime) -> Completeness:
    return Completeness.stale(since, offers_from(cloud, since))


def _failed(cloud: str, at: datetime, sentence: str, *, silent: bool = False) -> CloudAnswer:
    return CloudAnswer(
        cloud, False, 0, at, sentence, silent=silent,
        completeness=Completeness.unknown(f"{cloud_title(cloud)} did not answer." if silent else sentence),
    )  # fmt: skip
