"""Query all clouds for offers at once, each with its own deadline, and say which of them did not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from bot.rules.grammar.market_words import SortKey
from bot.rules.market import node_sets
from bot.rules.market.disk import disk_gb
from bot.rules.market.filters import Excluded, least_cuda
from bot.rules.market.listing import OfferRow, listed, unknown_places
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.market.ranking import OrderedMarket
from bot.rules.market.relaxation import ADVISED, Relaxation, relax, widest
from bot.rules.policy.policy import Policy
from bot.rules.pricing.bids import with_margin
from bot.services.market.answers import CloudAnswer, most_answered
from bot.services.market.one_read import OneRead
from bot.services.market.preflight import Checks, refusal
from bot.services.market.snapshots import Snapshots
from ledger.kernel import money
from ledger.kernel.clock import Clock
from ledger.kernel.ids import hex_token
from ledger.kernel.job import GpuConstraint, JobRequest, SpotPolicy
from providers.capabilities import Capabilities
from providers.contract import Balance, HostRecord, Offer, Provider
from providers.errors import ProviderError, QuotaExceeded, RateLimited, Unavailable

FRESH_S = 60.0
#: For this long the last good answer of a rate-limited cloud is used instead of a new query.
STRETCHED_S = 300.0
#: A first page with this many offers may not be everything; further pages are fetched in the background.
FULL_PAGE = 60
DEEPER_PAGES = 4

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MarketAnswer:
    """The offers of all clouds that answered, and how each answered. `balances` are the known account balances."""

    offers: tuple[Offer, ...]
    answers: tuple[CloudAnswer, ...]
    balances: Mapping[str, Balance | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MarketListing:
    """Everything that fits a question, as it was for sale at one moment. It never changes, so pages may share it.

    `market` says what each offer costs in all; `advice` says what to change when nothing fits, and which place is
    nowhere.
    """

    id: str
    job: JobRequest
    sort: SortKey
    rows: Sequence[OfferRow]
    market: OrderedMarket
    answers: tuple[CloudAnswer, ...]
    advice: tuple[str, ...] = ()

    @property
    def offers(self) -> int:
        """Count the offers in all rows."""
        return len(self.market.offers)

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Return what was left out, by its reason."""
        return self.market.excluded


#: Reads the measured runs of this installation, and the times that its machines took.
ReadRuns = Callable[[], Awaitable[OwnHistory]]


async def no_runs() -> OwnHistory:
    """Return no runs, for a market without a ledger."""
    return NO_HISTORY


#: Reads what own sessions on each host showed, by its cloud and machine id.
ReadHosts = Callable[[], Awaitable[Mapping[tuple[str, str], HostRecord]]]


async def no_hosts() -> Mapping[tuple[str, str], HostRecord]:
    """Return no records of hosts, for a market without a ledger."""
    return {}


#: Reads the configuration of a model that is not known here.
ReadModel = Callable[[str], Awaitable[Mapping[str, Any] | None]]


async def no_models(_name: str) -> None:
    """Return nothing, for a market that asks no Hub."""


_Key = tuple[str, GpuConstraint, int, bool | None]
_Answered = tuple[CloudAnswer, tuple[Offer, ...]]


class _Known(NamedTuple):
    """An answer, and at which monotonic second it was asked for: the wall clock may be corrected since."""

    answered: _Answered
    at_s: float


def _in_micros(offer: Offer) -> Offer:
    """Return the offer at a price that the ledger can store: what is shown, approved and bought are the same."""
    offer = with_margin(offer)
    price = money.rate(offer.price_usd_h) if offer.price_usd_h is not None else None
    return offer if price == offer.price_usd_h else replace(offer, price_usd_h=price)


def _with_records(offers: tuple[Offer, ...], records: Mapping[tuple[str, str], HostRecord]) -> tuple[Offer, ...]:
    """Add to each offer what own sessions on its host showed."""
    if not records:
        return offers
    known = [records.get((one.cloud, one.machine_id)) if one.machine_id is not None else None for one in offers]
    return tuple(one if own is None else replace(one, own=own) for one, own in zip(offers, known, strict=True))


class Catalog:
    """Query clouds for offers and cache each answer for a minute. What is about to be bought is queried again.

    A cloud that reports a rate limit is queried less: its last good answer is used for five minutes, and again for one
    minute after its next good answer.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        clock: Clock,
        deadline_s: float,
        unused: Iterable[str] = (),
        read_runs: ReadRuns = no_runs,
        stores: Collection[str] = (),
        read_model: ReadModel = no_models,
        read_hosts: ReadHosts = no_hosts,
    ) -> None:
        """`unused` are the known clouds that are not set up here; `stores` as in `Checks`."""
        self.checks = Checks(providers, clock, deadline_s, stores)
        self._unused = tuple(unused)
        self._providers = providers
        #: What the installation's own sessions showed, which corrects the expected speed and start of every offer.
        self.own_history = OneRead(read_runs)
        #: The configuration that the makers of a model published, by its name.
        self.read_model = read_model
        self._read_hosts = OneRead(read_hosts)
        self._clock = clock
        self._deadline_s = deadline_s
        self._known: dict[_Key, _Known] = {}
        #: Rate-limited clouds, and until which monotonic second not to query them at all.
        self._slow: dict[str, float] = {}
        self._asking: dict[_Key, asyncio.Task[_Answered]] = {}
        self._deeper: set[asyncio.Task[None]] = set()
        self.snapshots: Snapshots[tuple[JobRequest, SortKey], MarketListing] = Snapshots(clock)

    @property
    def capabilities(self) -> dict[str, Capabilities]:
        """Return what each cloud of this market can do."""
        return {name: provider.capabilities for name, provider in self._providers.items()}

    async def market(
        self,
        job: JobRequest,
        disk_gb: int,
        *,
        policy: Policy | None = None,
        fresh: bool = False,
        to_buy: bool = False,
        observed: bool = True,
    ) -> MarketAnswer:
        """Query every wanted cloud's offers for `job` concurrently; a slow or failing cloud affects only itself.

        With a `policy` each cloud is asked for hosts whose driver can run the image that it would get. With `to_buy`
        each account is checked meanwhile, and a cloud that fails the check has no offers. Each offer is `observed`: it
        has the record of own sessions on its host.
        """
        named = [name for name in self._providers if self._is_wanted(name, job)]
        alone = {name: self._alone(name, job) for name in named}
        wanted = [name for name in named if not alone[name]]
        spot = {SpotPolicy.NO: False, SpotPolicy.YES: True, SpotPolicy.ANY: None}[job.spot]
        least = {name: least_cuda(job, policy, name) if policy is not None else None for name in wanted}
        keys = [(name, replace(job.gpu, cuda_min=least[name]), disk_gb, spot) for name in wanted]
        asked = asyncio.gather(*(self._ask(key, fresh=fresh) for key in keys))
        checked = asyncio.gather(*(self.checks.check(name) for name in wanted if to_buy))
        results = [self._linked(*self._without_spot(answer, offers, job), job) for answer, offers in await asked]
        balances: dict[str, Balance | None] = {}
        bad: dict[str, str] = {}
        for one in await checked:
            balances[one.cloud] = one.balance
            if not one.ok:
                bad[one.cloud] = refusal(one)
        results = [
            (replace(answer, ok=False, count=0, sentence=bad[answer.cloud]), ())
            if answer.ok and answer.cloud in bad
            else (answer, offers)
            for answer, offers in results
        ]
        at = self._clock.now()
        singles = (CloudAnswer(name, True, 0, at, said) for name, said in alone.items() if said)
        answers = [*(answer for answer, _ in results), *singles, *self._not_set_up(job.candidates)]
        found = tuple(offer for _, offers in results for offer in offers)
        records = await self._read_hosts() if observed else {}
        return MarketAnswer(_with_records(found, records), tuple(answers), balances)

    def _is_wanted(self, name: str, job: JobRequest) -> bool:
        """Whether a cloud is asked: of those that nobody named, the ones that rent out machines."""
        return name in job.candidates if job.candidates else self._providers[name].capabilities.volume_gb is None

    def _alone(self, cloud: str, job: JobRequest) -> str:
        """Say why a cloud does not rent out so many machines for one job; "" where it may."""
        return node_sets.refused(cloud, self._providers[cloud].capabilities.single_node, job)

    def _linked(self, answer: CloudAnswer, offers: tuple[Offer, ...], job: JobRequest) -> _Answered:
        """Return the offers of so many machines: of a set only those whose machines reach each other."""
        nodes = job.nodes
        if nodes == 1:
            return answer, offers
        found = tuple(node_sets.as_set(one, nodes) for one in offers if one.linked or job.queue)
        said = node_sets.without_links(answer.cloud, nodes) if offers and not found else answer.sentence
        return replace(answer, count=len(found), sentence=said), found

    def _without_spot(self, answer: CloudAnswer, offers: tuple[Offer, ...], job: JobRequest) -> _Answered:
        """Say of a cloud that somebody named for a spot GPU, or that stopped renting them out, which others do."""
        capabilities = self.capabilities
        able, mine = {name for name, one in capabilities.items() if one.spot}, capabilities[answer.cloud]
        named = job.spot is SpotPolicy.YES and answer.cloud in job.candidates
        if job.spot is SpotPolicy.NO or mine.spot or not answer.ok or not (named or mine.spot_gone):
            return answer, offers
        while_off = f" while {mine.spot_setting} is off" if mine.spot_setting else ""
        others = f"These do: {', '.join(sorted(able))}." if able else "No other cloud here does."
        why = mine.spot_gone or f"{answer.cloud} rents out no spot GPUs{while_off}."
        return replace(answer, sentence=f"{why} {others}"), offers

    def _not_set_up(self, candidates: tuple[str, ...]) -> list[CloudAnswer]:
        """Return one answer for each wanted cloud without credentials.

        The first one has the sentence for all of them.
        """
        names = [name for name in candidates if name not in self._providers] if candidates else list(self._unused)
        verb = "is not set up here, so it was" if len(names) == 1 else "are not set up here, so they were"
        sentence_of_all = f"{' and '.join(filter(None, [', '.join(names[:-1]), *names[-1:]]))} {verb} not asked."
        now = self._clock.now()
        return [
            CloudAnswer(name, False, 0, now, "" if place else sentence_of_all, set_up=False)
            for place, name in enumerate(names)
        ]

    async def inventory(self, job: JobRequest, policy: Policy, sort: SortKey = SortKey.TOTAL) -> MarketListing:
        """Return everything that is for sale for `job`; the same listing until a cloud has answered anew."""
        job = replace(job, disk_gb=disk_gb(job, policy))
        found = await self.market(job, job.disk_gb, policy=policy, observed=False)
        said = [(one.cloud, one.count, one.sentence, one.at if one.ok else None) for one in found.answers]
        version, question = (policy, tuple(said)), (job, sort)
        known = self.snapshots.newest(question, version)
        if known is not None:
            return known
        # A large market takes a good part of a second; in a thread it delays nobody else.
        rows, market = await asyncio.to_thread(listed, found.offers, job, policy, self.capabilities, sort)
        known_enough = most_answered(found.answers)
        advice = [unknown_places(found.offers, job.regions)] if known_enough else []
        if not rows and known_enough:
            advice += [one.sentence for one in (await self.openings(job, policy))[:ADVISED]]
        name = hex_token(8)
        listing = MarketListing(name, job, sort, rows, market, found.answers, tuple(filter(None, advice)))
        self.snapshots.keep(question, version, name, listing, listing.offers)
        return listing

    async def openings(
        self, job: JobRequest, policy: Policy, usable: Callable[[Offer], bool] = lambda _: True, **how: Any
    ) -> tuple[Relaxation, ...]:
        """Return the changes that would let offers fit a job that nothing fits, the least change first.

        `how` are the arguments of `rank` that it was ranked by. The clouds are queried once more for the offers that
        one limit hides; only `usable` offers count.
        """
        wide = await self.market(widest(job, policy), job.disk_gb)
        return relax([one for one in wide.offers if usable(one)], job, policy, self.capabilities, **how)

    async def reprice(self, offer: Offer, disk_gb: int) -> Offer | None:
        """Return the same offer at its price now, or None when it is gone. `ProviderError`: no cloud could say."""
        fresh = await self._providers[offer.cloud].requote(offer, disk_gb=disk_gb)
        return None if fresh is None else _in_micros(fresh)

    async def close(self) -> None:
        """Cancel the queries that nobody waits for."""
        await self.checks.close()
        for task in (*self._deeper, *self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._deeper, *self._asking.values(), return_exceptions=True)

    async def _ask(self, key: _Key, *, fresh: bool) -> _Answered:
        now_s = self._clock.monotonic()
        known = None if fresh else self._known.get(key)
        if known and now_s - known.at_s < self._keep_s(key[0]):
            return known.answered
        if not fresh and now_s < self._slow.get(key[0], now_s):
            sentence = f"{key[0]} asked to be left alone for now."
            return CloudAnswer(key[0], False, 0, self._clock.now(), sentence), ()
        task = self._asking.get(key)
        if task is None:
            task = asyncio.create_task(self._fetch(key), name=f"offers-{key[0]}")
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        result = await asyncio.shield(task)
        # The cloud may have reported a rate limit just now: its last answer is better than none.
        if not result[0].ok and known and now_s - known.at_s < self._keep_s(key[0]):
            return known.answered
        return result

    def _keep_s(self, cloud: str) -> float:
        return STRETCHED_S if cloud in self._slow else FRESH_S

    async def _fetch(self, key: _Key) -> _Answered:
        name, constraint, disk_gb, spot = key
        at, at_s = self._clock.now(), self._clock.monotonic()
        try:
            async with asyncio.timeout(self._deadline_s):
                found = await self._providers[name].offers(constraint, disk_gb=disk_gb, spot=spot)
            offers = tuple(map(_in_micros, found))
        except TimeoutError:
            sentence = f"{name} did not answer within {self._deadline_s:g} s."
            return CloudAnswer(name, False, 0, at, sentence, silent=True), ()
        except ProviderError as error:
            self._slow_down(name, error)
            silent = isinstance(error, Unavailable)
            return CloudAnswer(name, False, 0, at, f"{name}: {error.message}.", silent=silent), ()
        self._slow.pop(name, None)
        source = self._providers[name].capabilities.source
        listed_on = min((one.listed_on for one in offers if one.listed_on is not None), default=None)
        result = CloudAnswer(name, True, len(offers), at, source=source, listed_on=listed_on), offers
        self._known[key] = _Known(result, at_s)
        self._forget_old(at_s)
        if len(offers) >= FULL_PAGE:
            task = asyncio.create_task(self._fetch_deeper(key, at_s), name=f"offers-deeper-{name}")
            self._deeper.add(task)
            task.add_done_callback(self._deeper.discard)
        return result

    async def _fetch_deeper(self, key: _Key, at_s: float) -> None:
        """Fetch further pages in the background, so that the next query within the minute sees the whole market."""
        name, constraint, disk_gb, spot = key
        try:
            found = await self._providers[name].offers(constraint, disk_gb=disk_gb, spot=spot, pages=DEEPER_PAGES)
            offers = tuple(map(_in_micros, found))
        except ProviderError as error:
            self._slow_down(name, error)
            log.info("deeper pages of %s were not read: %s", name, error.code)
            return
        known = self._known.get(key)
        if known is not None and known.at_s == at_s:
            self._known[key] = _Known((replace(known.answered[0], count=len(offers)), offers), at_s)

    def _slow_down(self, cloud: str, error: ProviderError) -> None:
        """Query a cloud less after a rate limit, and not before the time that it names."""
        if isinstance(error, RateLimited | QuotaExceeded):
            pause_s = min(getattr(error, "retry_after_s", None) or 0.0, STRETCHED_S)
            self._slow[cloud] = self._clock.monotonic() + pause_s

    def sold(self, cloud: str) -> None:
        """Query the cloud anew next time, because one of its offers was just bought; not while it must be spared."""
        if cloud not in self._slow:
            self._known = {key: answer for key, answer in self._known.items() if key[0] != cloud}

    def _forget_old(self, now_s: float) -> None:
        old = [key for key, known in self._known.items() if now_s - known.at_s >= STRETCHED_S]
        for key in old:
            del self._known[key]
