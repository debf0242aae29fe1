"""Refuse approvals above a budget, however many people approve at once, unless an administrator overrides it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.approvers import Deed, ineligible, names_of, slack_accounts
from bot.rules.approvals.approvers import named as actor_named
from bot.rules.approvals.decision import DeciderFacts, confirmed, linked
from bot.rules.budgets.budget import BudgetLine, Period, begins, fits, reached, said, scopes_of
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import Verdict, deny
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.budgets import limits as budget_limits
from bot.services.runtime.context import Context
from ledger.core import Tx, announce, lock_budgets, notification_of, record
from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import NotificationKind
from ledger.models import Request
from ledger.queries.access import Whose, consumer_of
from ledger.queries.budgets.open_spend import outstanding
from ledger.queries.spend import EVERYBODY, Purse, counted, thresholds_set

OPERATORS = "channel:operators"
_NOTHING = Decimal(0)
#: Kinds of actors that have no user budget.
_NOBODY = frozenset({ActorKind.CONSUMER, ActorKind.AGENT, ActorKind.SYSTEM})


@dataclass(frozen=True, slots=True)
class PlannedSpend:
    """What an approval would add: owner, label, most dollars in all and per hour, `expected_usd` as people type."""

    owner: str
    label: str
    total_usd: Decimal
    rate_usd_h: Decimal
    expected_usd: Decimal


@dataclass(frozen=True, slots=True)
class Room:
    """Whether a spend fits, and the budgets that it counts against, as they are before it."""

    verdict: Verdict
    lines: tuple[BudgetLine, ...] = ()


def spend_of(
    policy: Policy, request: Request, owner: str, cover: tuple[Decimal, Decimal], expected_usd: Decimal
) -> PlannedSpend:
    """Return the spend that an approval of a request covers; `cover` is `(price cap per hour, total cap)`.

    An extension of a running instance adds nothing to what is paid per hour.
    """
    job = job_of(request.job)
    rate_usd_h = _NOTHING if job.already_hours else cover[0]
    return PlannedSpend(owner, job.label or policy.project, cover[1], rate_usd_h, expected_usd)


async def check_budgets(
    ctx: Context,
    tx: Tx,
    spend: PlannedSpend,
    now: datetime,
    decider: DeciderFacts | None = None,
    typed: str | None = None,
) -> Room:
    """Whether a spend fits into every budget that it counts against. They stay locked until the transaction ends.

    A budget administrator may approve above one and types the amount for it: code `amount_needed` first, then
    `overridden`.
    """
    limits = await budget_limits.in_force(ctx, tx)
    if not limits:
        return Room(Verdict(True, ReplyCode.OK, ""))
    await lock_budgets(tx)
    lines = tuple(await _lines(ctx, tx, limits, spend.owner, spend.label, now))
    verdict = fits(lines, spend.total_usd, spend.rate_usd_h)
    if not verdict.allowed and decider is not None and _is_admin(ctx.policy, decider):
        amount = confirmed(typed, spend.expected_usd)
        if amount is None:
            sentence = f"An administrator approved it above the budget. {verdict.sentence}"
            verdict = Verdict(True, ReplyCode.OVERRIDDEN, sentence)
        else:
            verdict = deny(amount.code, f"{verdict.sentence} You can still approve it. {amount.sentence}")
    return Room(verdict, lines)


async def check_transfer(ctx: Context, tx: Tx, spend: PlannedSpend, before: str, now: datetime) -> Room:
    """Whether a spend that moves from the owner `before` to `spend.owner` fits into the budgets that it is new to.

    Budgets of both owners count it already. They stay locked until the transaction ends.
    """
    limits = await budget_limits.in_force(ctx, tx)
    if not limits:
        return Room(Verdict(True, ReplyCode.OK, ""))
    await lock_budgets(tx)
    both = {(one.key, one.period) for one in await _lines(ctx, tx, limits, before, spend.label, now)}
    mine = await _lines(ctx, tx, limits, spend.owner, spend.label, now)
    lines = tuple(one for one in mine if (one.key, one.period) not in both)
    return Room(fits(lines, spend.total_usd, spend.rate_usd_h), lines)


async def reserved(ctx: Context, tx: Tx, spend: PlannedSpend, room: Room, now: datetime) -> None:
    """Notify the budget owners of the thresholds that an approval has reached, each once per period."""
    await _notify(ctx, tx, room.lines, spend.total_usd, spend.rate_usd_h, now)


async def noticed(ctx: Context, owner: str, now: datetime) -> None:
    """Notify the budget owners of spending that needs no approval here."""
    async with ctx.db.write() as tx:
        limits = await budget_limits.in_force(ctx, tx)
        if limits:
            await lock_budgets(tx)
            await _notify(ctx, tx, await _lines(ctx, tx, limits, owner, "", now), _NOTHING, _NOTHING, now)
    ctx.hints.outbox.set()


async def _notify(
    ctx: Context, tx: Tx, lines: Iterable[BudgetLine], total_usd: Decimal, rate_usd_h: Decimal, now: datetime
) -> None:
    kind = NotificationKind.BUDGET_THRESHOLD
    own = await thresholds_set(tx)
    for line in lines:
        thresholds = own.get((line.scope, str(line.period)), ctx.policy.thresholds(line.scope))
        # One approval may reach several shares at once: the highest says it all.
        for share in reached(line, total_usd, rate_usd_h, thresholds)[-1:]:
            # What is paid per hour falls again, so its owners are notified once a day.
            day = now if line.period is Period.HOURLY else line.since
            since = f"{day:%Y-%m-%d}" if day else "all"
            subject = f"{line.key}/{line.period}/{since}/{share * 100:.0f}"
            added = line.adds(total_usd, rate_usd_h)
            passed = f"passed {share * 100:.0f}%: {said(line, added)}."
            sentence = f"The budget {line.key} {passed}"
            person = _person_of(ctx.policy, line)
            new = False
            for destination in _once_each(ctx.policy, (*person, *_owners(ctx.policy, line.scope))):
                if await notification_of(tx, kind, subject, destination) is None:
                    new, body = True, {"text": f"Your budget {passed}" if destination in person else sentence}
                    await announce(tx, now, kind, subject, destination=destination, body=body)
            if new:
                record(tx, now, SYSTEM, line.key, EventKind.BUDGET_THRESHOLD, reason=sentence)


def overridden(tx: Tx, request: Request, actor: Actor, room: Room, now: datetime) -> None:
    """Record that an administrator approved above a budget."""
    record(tx, now, actor, request.id, EventKind.BUDGET_OVERRIDDEN, reason=room.verdict.sentence)


async def overview(ctx: Context, actor: Actor | None = None) -> list[BudgetLine]:
    """Return the budgets that one person's spending counts against; without a person, all that are set by name."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        if actor is None:
            return await named(ctx, tx, now)
        limits = await budget_limits.in_force(ctx, tx)
        return await _lines(ctx, tx, limits, actor.ref, ctx.policy.project, now)


async def named(ctx: Context, tx: Tx, now: datetime) -> list[BudgetLine]:
    """Return the budgets that are set by name, in the caller's transaction."""
    limits = await budget_limits.in_force(ctx, tx)
    return await _measured(ctx, tx, limits, [(one, one) for one in limits if not one.endswith(":*")], now)


async def _lines(
    ctx: Context, tx: Tx, limits: budget_limits.Limits, owner_ref: str, label: str, now: datetime
) -> list[BudgetLine]:
    owner = Actor.from_ref(owner_ref)
    behind = await consumer_of(tx, owner.ref) if owner.is_program else None
    person = Actor.from_ref(behind.owner) if behind else owner
    people = [person, *linked(ctx.policy, person)] if person.kind not in _NOBODY else []
    names = [_name(one) for one in people]
    teams = [team for team, members in ctx.policy.teams.items() if {*names, *(p.ref for p in people)} & set(members)]
    programs = [owner.id] if owner.is_program else []
    named_here = [name for name in names if f"user:{name}" in limits]
    # A limit for each person counts a person once, whichever of their names asks.
    return await _measured(ctx, tx, limits, scopes_of(limits, named_here or names[:1], programs, teams, label), now)


async def _measured(
    ctx: Context, tx: Tx, limits: budget_limits.Limits, scopes: list[tuple[str, str]], now: datetime
) -> list[BudgetLine]:
    found = []
    for key, scope in scopes:
        purse = await purse_of(ctx, tx, key)
        periods = {Period(name): begins(Period(name), now) for name in limits[scope]}
        open_usd, rate_usd_h, unsettled = await outstanding(tx, purse, periods.values())
        for name, limit in limits[scope].items():
            period = Period(name)
            since = periods[period]
            if period is Period.HOURLY:
                found.append(BudgetLine(key, scope, period, limit, _NOTHING, rate_usd_h))
            else:
                # An end that nobody dated may have been later than what is booked: that much stays reserved.
                reserved_usd, spent_usd = open_usd + unsettled[since], await counted(tx, purse, since)
                found.append(BudgetLine(key, scope, period, limit, spent_usd, reserved_usd, since))
    return found


async def purse_of(ctx: Context, tx: Tx, key: str) -> Purse:
    """Return whose spending a budget counts.

    A person's includes all their names and programs, a team's all its members.
    """
    kind, _, name = key.partition(":")
    if kind == "label":
        return Purse(label=name)
    if kind == "consumer":
        return Purse(Whose.of([Actor(ActorKind.CONSUMER, name), Actor(ActorKind.AGENT, name)]))
    members = {"user": (name,), "team": ctx.policy.teams.get(name, ())}.get(kind)
    if members is None:
        return EVERYBODY
    found = [await authorization.mine(tx, ctx.policy, actor_named(member)) for member in members]
    refs = frozenset(ref for whose in found for ref in whose.refs)
    return Purse(Whose(refs, frozenset(one for whose in found for one in whose.slack_ids)))


def _name(actor: Actor) -> str:
    """Return a person's name as the policy writes it."""
    return actor.id if actor.kind is ActorKind.SLACK else actor.ref


def _is_admin(policy: Policy, who: DeciderFacts) -> bool:
    usable = ineligible(policy, who, Deed.APPROVE) is None
    return usable and bool(names_of(policy, who.actor) & set(policy.budget_admins))


def _once_each(policy: Policy, names: Iterable[str]) -> list[str]:
    """Return one name of each person, the one in Slack where they have one."""
    found: list[str] = []
    for name in sorted(names, key=lambda one: ":" in one):
        same = {_name(one) for one in linked(policy, actor_named(name))} if not name.startswith("channel:") else set()
        if name not in found and not same & set(found):
            found.append(name)
    return found


def _person_of(policy: Policy, line: BudgetLine) -> tuple[str, ...]:
    """Return the Slack account of the person whose own budget it is; nothing for every other budget."""
    kind, _, name = line.key.partition(":")
    return slack_accounts(policy, [name]) if kind == "user" else ()


def _owners(policy: Policy, scope: str) -> tuple[str, ...]:
    return policy.budget_owners.get(scope) or slack_accounts(policy, policy.budget_admins) or (OPERATORS,)
