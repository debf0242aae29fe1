"""Query all clouds for offers at once, each with its own deadline, and say which of them did not answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.rules.jobs.facets.gpus import refusal_of_set
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.market import node_sets
from bot.rules.market.disk import disk_gb
from bot.rules.market.filters import Excluded, least_cuda
from bot.rules.market.listing import OfferRow, listed, unknown_places
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.market.ranking import OrderedMarket
from bot.rules.market.relaxation import ADVISED, Relaxation, relax, widest
from bot.rules.market.sort_key import SortKey
from bot.rules.policy.policy import Policy
from bot.services.market.answers import (
    CloudAnswer,
    completeness_of,
    ended_early,
    most_answered,
    not_bought_from,
    still_reading,
)
from bot.services.market.copies import CopyTerms
from bot.services.market.preflight import Checks
from bot.services.market.reads import CloudOffers, CloudReads, Question, in_micros
from bot.services.market.snapshots import Snapshots
from bot.shared_read import SharedRead
from ledger.kernel.clock import Clock
from ledger.kernel.ids import hex_token
from providers.capabilities import Capabilities
from providers.completeness import COMPLETE, Completeness
from providers.contract import Balance, HostRecord, Offer, Preflight, Provider
from providers.gpus.constraint import GpuConstraint

#: How long a question waits for the rest of a cloud, beyond the first cloud's answer.
PATIENCE_S = 3.0
#: As long as the catalog itself waits.
USUAL_S = -1.0


@dataclass(frozen=True, slots=True)
class MarketAnswer:
    """The offers of all clouds that answered, and how each answered. `balances` are the known account balances."""

    offers: tuple[Offer, ...]
    answers: tuple[CloudAnswer, ...]
    balances: Mapping[str, Balance | None] = field(default_factory=dict)

    @property
    def completeness(self) -> Completeness:
        """Return how much of the market this is; its proof is needed for every word about the whole."""
        return completeness_of(self.answers)

    @property
    def reading(self) -> tuple[str, ...]:
        """Name the clouds whose rest is being read."""
        return still_reading(self.answers)

    def without_the_rest(self) -> MarketAnswer:
        """Return the same offers as an answer that nobody waits for any more."""
        return replace(self, answers=tuple(map(ended_early, self.answers)))


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


def _with_records(offers: tuple[Offer, ...], records: Mapping[tuple[str, str], HostRecord]) -> tuple[Offer, ...]:
    """Add to each offer what own sessions on its host showed."""
    if not records:
        return offers
    known = [records.get((one.cloud, one.machine_id)) if one.machine_id is not None else None for one in offers]
    return tuple(one if own is None else replace(one, own=own) for one, own in zip(offers, known, strict=True))


class Catalog:
    """Query all clouds for offers, and put their answers together. What is about to be bought is queried again."""

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
        self.own_history = SharedRead(read_runs)
        #: The configuration that the makers of a model published, by its name.
        self.read_model = read_model
        self._read_hosts = SharedRead(read_hosts)
        self._clock = clock
        self._reads = CloudReads(providers, clock, deadline_s)
        #: How long each question waits for the rest of a cloud; None: until all of it was read.
        self.patience_s: float | None = PATIENCE_S
        self.snapshots: Snapshots[tuple[JobRequest, SortKey], MarketListing] = Snapshots(clock)

    @property
    def capabilities(self) -> dict[str, Capabilities]:
        """Return what each cloud of this market can do."""
        return {name: provider.capabilities for name, provider in self._providers.items()}

    @property
    def copied_clouds(self) -> tuple[str, ...]:
        """Name the clouds whose whole market is copied, because their first answer may not be all of it."""
        return self._reads.copies.clouds

    async def copy_next(self, cloud: str, policy: Policy) -> int:
        """Make the next call for the copy of a cloud's market, if it is time for one; return how many were made."""
        everything = JobRequest(GpuConstraint((), 1, policy.max_gpus), Decimal(1))
        least_gb = min(policy.min_disk_gb.values())
        terms = CopyTerms(policy.max_gpus, least_gb, least_cuda(everything, policy, cloud))
        return await self._reads.copies.read_next(cloud, terms)

    async def market(
        self,
        job: JobRequest,
        disk_gb: int,
        *,
        policy: Policy | None = None,
        since: datetime | None = None,
        fresh: bool = False,
        to_buy: bool = False,
        observed: bool = True,
        whole: bool = True,
        patience_s: float | None = USUAL_S,
    ) -> MarketAnswer:
        """Query every wanted cloud's offers for `job` concurrently; a slow or failing cloud affects only itself.

        The answer says how complete it is. It waits for the rest of a cloud for at most `patience_s` seconds, or the
        catalog's own. After that the rest is still read, for the next question. With a `policy` each cloud is asked for
        hosts whose driver can run the image that it would get. With `to_buy` each account is checked meanwhile, and a
        cloud that fails the check has no offers. Each `observed` offer has the record of own sessions on its host. A
        `fresh` answer was read from now on, or from the time `since` on. Without `whole`, each cloud gets one call, and
        the copies add what they hold.
        """
        named = [name for name in self._providers if self._is_wanted(name, job)]
        alone = {name: self._alone(name, job) for name in named}
        wanted = [name for name in named if not alone[name]]
        spot = {SpotPolicy.NO: False, SpotPolicy.YES: True, SpotPolicy.ANY: None}[job.spot]
        least = {name: least_cuda(job, policy, name) if policy is not None else None for name in wanted}
        questions = [Question(name, replace(job.gpu, cuda_min=least[name]), disk_gb, spot) for name in wanted]
        asked = asyncio.ensure_future(
            self._answers(questions, self._since_s(since, fresh=fresh), whole=whole, patience_s=patience_s)
        )
        checked = asyncio.gather(*(self.checks.check(name) for name in wanted if to_buy))
        results = [self._linked(*self._without_spot(answer, offers, job), job) for answer, offers in await asked]
        balances: dict[str, Balance | None] = {}
        bad: dict[str, Preflight] = {}
        for one in await checked:
            balances[one.cloud] = one.balance
            if not one.ok:
                bad[one.cloud] = one
        results = [
            CloudOffers(not_bought_from(answer, bad[answer.cloud]), ())
            if answer.ok and answer.cloud in bad
            else CloudOffers(answer, offers)
            for answer, offers in results
        ]
        at = self._clock.now()
        singles = (CloudAnswer(name, True, 0, at, said, completeness=COMPLETE) for name, said in alone.items() if said)
        answers = [*(answer for answer, _ in results), *singles, *self._not_set_up(job.candidates)]
        found = tuple(offer for _, offers in results for offer in offers)
        records = await self._read_hosts() if observed else {}
        return MarketAnswer(_with_records(found, records), tuple(answers), balances)

    async def _answers(
        self, questions: Sequence[Question], since_s: float | None, *, whole: bool, patience_s: float | None
    ) -> list[CloudOffers]:
        """Ask each cloud, and wait for the rest of what they sell; not much longer than the first cloud took."""
        firsts = [asyncio.ensure_future(self._reads.first(one, since_s=since_s, whole=whole)) for one in questions]
        if not firsts:
            return []
        loop = asyncio.get_running_loop()
        await asyncio.wait(firsts, return_when=asyncio.FIRST_COMPLETED)
        first_at = loop.time()
        found = await asyncio.gather(*firsts)
        patience_s = self.patience_s if patience_s == USUAL_S else patience_s
        left_s = None if patience_s is None else first_at + patience_s - loop.time()
        if whole:
            await self._reads.rest(questions, left_s)
        return [self._reads.now(one, first) for one, first in zip(questions, found, strict=True)]

    def _since_s(self, since: datetime | None, *, fresh: bool) -> float | None:
        """Return the monotonic second from which on an answer must be read; None where an earlier one does."""
        if since is None:
            return math.inf if fresh else None
        return self._clock.monotonic() - max((self._clock.now() - since).total_seconds(), 0.0)

    def _is_wanted(self, name: str, job: JobRequest) -> bool:
        """Whether a cloud is asked: of those that nobody named, the ones that rent out machines."""
        return name in job.candidates if job.candidates else self._providers[name].capabilities.volume_gb is None

    def _alone(self, cloud: str, job: JobRequest) -> str:
        """Say why a cloud does not rent out so many machines for one job; "" where it may."""
        single_node = self._providers[cloud].capabilities.single_node
        return refusal_of_set(cloud, single_node, job.nodes, shares_queue=bool(job.queue))

    def _linked(self, answer: CloudAnswer, offers: tuple[Offer, ...], job: JobRequest) -> CloudOffers:
        """Return the offers of so many machines: of a set only those whose machines reach each other."""
        nodes = job.nodes
        if nodes == 1:
            return CloudOffers(answer, offers)
        found = tuple(node_sets.as_set(one, nodes) for one in offers if one.linked or job.queue)
        said = node_sets.without_links(answer.cloud, nodes) if offers and not found else answer.sentence
        return CloudOffers(replace(answer, count=len(found), sentence=said), found)

    def _without_spot(self, answer: CloudAnswer, offers: tuple[Offer, ...], job: JobRequest) -> CloudOffers:
        """Say of a cloud that somebody named for a spot GPU, or that stopped renting them out, which others do."""
        capabilities = self.capabilities
        able, mine = {name for name, one in capabilities.items() if one.spot}, capabilities[answer.cloud]
        named = job.spot is SpotPolicy.YES and answer.cloud in job.candidates
        if job.spot is SpotPolicy.NO or mine.spot or not answer.ok or not (named or mine.spot_gone):
            return CloudOffers(answer, offers)
        while_off = f" while {mine.spot_setting} is off" if mine.spot_setting else ""
        others = f"These do: {', '.join(sorted(able))}." if able else "No other cloud here does."
        why = mine.spot_gone or f"{answer.cloud} rents out no spot GPUs{while_off}."
        return CloudOffers(replace(answer, sentence=f"{why} {others}"), offers)

    def _not_set_up(self, candidates: tuple[str, ...]) -> list[CloudAnswer]:
        """Return one answer for each wanted cloud without credentials.

        The first one has the sentence for all of them.
        """
        names = [name for name in candidates if name not in self._providers] if candidates else list(self._unused)
        verb = "is not set up here, so it was" if len(names) == 1 else "are not set up here, so they were"
        sentence_of_all = f"{' and '.join(filter(None, [', '.join(names[:-1]), *names[-1:]]))} {verb} not asked."
        now = self._clock.now()
        return [
            CloudAnswer(name, False, 0, now, "" if place else sentence_of_all, set_up=False, completeness=COMPLETE)
            for place, name in enumerate(names)
        ]

    async def inventory(self, job: JobRequest, policy: Policy, sort: SortKey = SortKey.TOTAL) -> MarketListing:
        """Return everything that is for sale for `job`; the same listing until a cloud has answered anew."""
        job = replace(job, disk_gb=disk_gb(job, policy))
        found = await self.market(job, job.disk_gb, policy=policy, observed=False)
        said = [
            (one.cloud, one.count, one.sentence, one.at if one.ok else None, one.completeness) for one in found.answers
        ]
        version, question = (policy, tuple(said)), (job, sort)
        known = self.snapshots.newest(question, version)
        if known is not None:
            return known
        # A large market takes a good part of a second; in a thread it delays nobody else.
        rows, market = await asyncio.to_thread(listed, found.offers, job, policy, self.capabilities, sort)
        known_enough, proof = most_answered(found.answers), found.completeness.proof
        advice = [unknown_places(found.offers, job.regions, proof)]
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
        wide = await self.market(widest(job, policy), job.disk_gb, patience_s=PATIENCE_S)
        usable_ones = [one for one in wide.offers if usable(one)]
        return relax(usable_ones, job, policy, self.capabilities, wide.completeness.proof, **how)

    async def reprice(self, offer: Offer, disk_gb: int) -> Offer | None:
        """Return the same offer at its price now, or None when it is gone. `ProviderError`: no cloud could say."""
        fresh = await self._providers[offer.cloud].requote(offer, disk_gb=disk_gb)
        return None if fresh is None else in_micros(fresh)

    def sold(self, offer: Offer) -> None:
        """Query the cloud again next time, because this offer was just bought; not while it is rate-limited."""
        self._reads.sold(offer)

    async def close(self) -> None:
        """Cancel the queries that nobody waits for."""
        await self.checks.close()
        await self._reads.close()
