"""Sum what was spent by group: what is booked, from the rollup, and the running hour of each instance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from bot.rules.approvals import approvers
from bot.rules.budgets.budget import Period, begins
from bot.rules.plans.completion import FinishedJob, SuccessCost, cost_per_success
from bot.rules.policy.policy import Policy
from bot.services.access import authorization
from bot.services.billing.metering import cost_now
from bot.services.runtime.context import Context
from ledger.core import Tx
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.calendar_spans import after, begin
from ledger.kernel.end_reason import WENT_WELL, WENT_WRONG
from ledger.kernel.states import RollupTier
from ledger.queries.spend import EVERYBODY, Purse, buckets, costs, outcomes, spent
from ledger.queries.views import SessionView, session_views

#: More sessions than one team runs at once.
SESSIONS_MAX = 10_000
#: How many names of one grouping are shown; the rest is one line.
SHOWN = 8
#: How many days a short view shows, today among them.
DAYS_SHOWN = 7
#: Before anything that a ledger can contain.
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
#: What one bucket of each view is.
TIERS = {
    Period.HOURLY: RollupTier.HOUR,
    Period.DAILY: RollupTier.DAY,
    Period.MONTHLY: RollupTier.MONTH,
    Period.TOTAL: RollupTier.MONTH,
}


@dataclass(frozen=True, slots=True)
class Costs:
    """Dollars of today and of this month (UTC), and those since `since` by hour, day or month and by group.

    All of them include `running_usd`, what instances have used that no entry books yet. `finished` is about the
    sessions that ended in that time and whose owner reported how the work went.
    """

    period: Period
    since: datetime
    today_usd: Decimal
    month_usd: Decimal
    total_usd: Decimal
    buckets: tuple[tuple[datetime, Decimal], ...]
    groups: dict[str, tuple[tuple[str, Decimal], ...]]
    finished: SuccessCost
    running_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class BriefCosts:
    """Dollars of today and of this month (UTC), and of each of the last `DAYS_SHOWN` days; running ones included."""

    today_usd: Decimal = Decimal(0)
    month_usd: Decimal = Decimal(0)
    days: tuple[tuple[datetime, Decimal], ...] = ()


def since_when(period: Period, now: datetime) -> datetime:
    """Return when a view begins: the last 24 hours, this month by the day, the last 12 months, or everything."""
    if period is Period.HOURLY:
        return begin(RollupTier.HOUR, now) - timedelta(hours=23)
    month = begin(RollupTier.MONTH, now)
    if period is Period.MONTHLY:
        return begin(RollupTier.MONTH, month.replace(year=month.year - 1) + timedelta(days=31))
    return month if period is Period.DAILY else _FIRST


async def overview(ctx: Context, actor: Actor | None = None, period: Period = Period.DAILY) -> Costs:
    """Return the costs of one person and of their programs; without a person, everybody's."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        purse = EVERYBODY if actor is None else Purse(await authorization.mine(tx, ctx.policy, actor))
        found = _with_running(await of_purse(tx, purse, period, now), await running_of(ctx, tx, purse, now), now)
    return replace(found, groups={**found.groups, "owner": by_person(ctx.policy, found.groups["owner"])})


async def brief(ctx: Context, actor: Actor | None = None) -> BriefCosts:
    """Return the newest costs of one person and of their programs; without a person, everybody's."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        purse = EVERYBODY if actor is None else Purse(await authorization.mine(tx, ctx.policy, actor))
        day, month = begin(RollupTier.DAY, now), begin(RollupTier.MONTH, now)
        first = day - timedelta(days=DAYS_SHOWN - 1)
        booked = await buckets(tx, purse, RollupTier.DAY, first, after(RollupTier.DAY, day))
        running_usd = sum((usd for _, usd in await running_of(ctx, tx, purse, now)), Decimal(0))
        month_usd = await spent(tx, purse, month) + running_usd
    booked[day] = booked.get(day, Decimal(0)) + running_usd
    days = every_bucket(booked.items(), RollupTier.DAY, first, now)
    return BriefCosts(booked[day], month_usd, days)


def every_bucket(
    found: Iterable[tuple[datetime, Decimal]], tier: RollupTier, since: datetime, until: datetime
) -> tuple[tuple[datetime, Decimal], ...]:
    """Return a bucket for every hour, day or month from `since` to `until`; those without a cost have zero dollars."""
    amounts, began, every = dict(found), begin(tier, since), []
    while began <= until:
        every.append((began, amounts.get(began, Decimal(0))))
        began = after(tier, began)
    return tuple(every)


async def running_of(ctx: Context, tx: Tx, purse: Purse, now: datetime) -> list[tuple[SessionView, Decimal]]:
    """Return the dollars that each live session of a purse has used and that no entry books yet."""
    views = await session_views(tx, whose=purse.whose, limit=SESSIONS_MAX)
    return [(view, cost_now(ctx, view, now) - view.accrued_usd) for view in views]


def _with_running(booked: Costs, running: list[tuple[SessionView, Decimal]], now: datetime) -> Costs:
    """Add to booked costs what is running, in every group and in the bucket of this moment, so that all sums agree."""
    more_usd = sum((usd for _, usd in running), Decimal(0))
    if not more_usd:
        return booked
    groups = {by: dict(rows) for by, rows in booked.groups.items()}
    for view, usd in running:
        session, row = view.session, view.instance
        program = session.owner if Actor.from_ref(session.owner).is_program else None
        facets = {"owner": session.owner, "consumer": program, "cloud": row.cloud if row else None}
        facets |= {"gpu": session.gpu or "", "label": session.label or "", "tool": ""}
        for by, name in facets.items():
            if name is not None and by in groups and usd:
                groups[by][name] = groups[by].get(name, Decimal(0)) + usd
    began = begin(TIERS[booked.period], now)
    buckets = dict(booked.buckets)
    buckets[began] = buckets.get(began, Decimal(0)) + more_usd
    return replace(
        booked,
        today_usd=booked.today_usd + more_usd,
        month_usd=booked.month_usd + more_usd,
        total_usd=booked.total_usd + more_usd,
        buckets=tuple(sorted(buckets.items())),
        groups={by: tuple(sorted(rows.items(), key=lambda one: (-one[1], one[0]))) for by, rows in groups.items()},
        running_usd=more_usd,
    )


async def of_purse(tx: Tx, purse: Purse, period: Period, now: datetime) -> Costs:
    """Return the costs of one purse in the caller's transaction."""
    day, month = begins(Period.DAILY, now) or now, begins(Period.MONTHLY, now) or now
    tier, since = TIERS[period], since_when(period, now)
    found = await buckets(tx, purse, tier, since, after(tier, begin(tier, now)))
    if found:
        found.setdefault(begin(tier, now), Decimal(0))  # A chart ends now, whenever the last dollar was spent.
    since = min(found, default=month) if period is Period.TOTAL else since
    by_group = await costs(tx, purse, since)
    # What was spent since then was just read, group by group.
    whole = sum((usd for _, usd in by_group["cloud"]), Decimal(0)) if since == month else None
    month_usd = await spent(tx, purse, month) if whole is None else whole
    groups = {by: named(by, rows) for by, rows in by_group.items()}
    ended = await outcomes(tx, purse, WENT_WELL | WENT_WRONG, since, now)
    finished = cost_per_success(FinishedJob(amount_usd, code in WENT_WELL) for code, amount_usd in ended)
    return Costs(
        period,
        since,
        await spent(tx, purse, day),
        month_usd,
        sum(found.values(), Decimal(0)),
        tuple(sorted(found.items())),
        groups,
        finished,
    )


#: The name among the owners for the costs of orphans, which belong to no session.
ORPHANS = "orphans"


def named(by: str, rows: Iterable[tuple[str, Decimal]]) -> tuple[tuple[str, Decimal], ...]:
    """Return the names of one grouping as people read them."""
    return tuple((name or (ORPHANS if by == "owner" else ""), amount_usd) for name, amount_usd in rows)


def by_person(policy: Policy, rows: Iterable[tuple[str, Decimal]]) -> tuple[tuple[str, Decimal], ...]:
    """Add up the amounts of each person's names, under the one in Slack where they have one; the greatest first."""
    one_of = {(actor.kind, actor.id): same[0] for same in policy.same_person for actor in map(approvers.named, same)}
    names, sums = dict[str, str](), dict[str, Decimal]()
    for name, amount_usd in rows:
        actor = Actor.from_ref(name) if ":" in name else None
        person = one_of.get((actor.kind, actor.id), name) if actor else name
        if person not in names or name.startswith(ActorKind.SLACK):
            names[person] = name
        sums[person] = sums.get(person, Decimal(0)) + amount_usd
    return tuple((names[person], sums[person]) for person in sorted(sums, key=lambda one: (-sums[one], names[one])))


def shortened(rows: tuple[tuple[str, Decimal], ...]) -> list[tuple[str, Decimal]]:
    """Return the greatest amounts, and the sum of all others as one line."""
    rest = rows[SHOWN:]
    others = [(f"{len(rest)} others", sum((amount for _, amount in rest), Decimal(0)))] if rest else []
    return [*rows[:SHOWN], *others]
