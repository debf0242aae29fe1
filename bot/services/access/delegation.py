"""Let an approver name one delegate who approves for them until a day, and revoke that at any time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from bot.rules.approvals.approvers import DeciderFacts, Deed, is_approver, linked, person_key
from bot.rules.approvals.delegation import last_moment, may_delegate
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from bot.services.people import direct_messages, eligibility
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import Tx, lock_requester, record
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import NotificationKind
from ledger.models import Delegation
from ledger.queries.access import Whose
from ledger.queries.decisions import delegators_of, end_delegations, given_by, in_force, said_before

REVOKED = Reply(True, ReplyCode.DELEGATION_ENDED, "Your delegate can no longer approve for you.")


@dataclass(frozen=True, slots=True)
class Delegate:
    """Name `to` as the delegate of `decider` through the day `until` (UTC); None revokes the delegation."""

    decider: DeciderFacts
    to: Actor | None = None
    until: date | None = None
    #: Names the call; a repeated call changes nothing. Empty where calls are never repeated.
    key: str = ""


def names_of(policy: Policy, actor: Actor) -> Whose:
    """Return every name of a person."""
    return Whose.of([actor, *linked(policy, actor)])


async def delegate(ctx: Context, command: Delegate) -> Reply:
    """Name a delegate in place of the one before, valid from this moment."""
    now, policy, who = ctx.clock.now(), ctx.policy, await eligibility.looked_up(ctx, command.decider)
    refused = may_delegate(policy, who, command.to, command.until, now)
    if not refused.allowed or command.to is None or command.until is None:
        return refuse(refused.code, refused.sentence)
    if await eligibility.ineligible_for(ctx, command.to, Deed.APPROVE):
        return refuse(ReplyCode.BAD_DELEGATE, "That person is not a full member of this workspace. Name somebody else.")
    until = last_moment(command.until)
    row = Delegation(
        id=new_id("del", now),
        delegator=who.actor.ref,
        delegate=command.to.ref,
        until=until,
        made_by=who.actor.ref,
        created_at=now,
    )
    async with ctx.db.write() as tx:
        await lock_requester(tx, person_key(policy, who.actor))  # One after the other, so that one delegate is left.
        if await said_before(tx, names_of(policy, who.actor), command.key, now - KEPT):
            return Reply(
                True, ReplyCode.DELEGATED, "You already named a delegate. The list of delegates shows who it is."
            )
        before = await given_by(tx, names_of(policy, who.actor), now)
        await end_delegations(tx, [one.id for one in before], who.actor.ref, now)
        tx.add(row)
        said = f"{command.to.ref} can approve for {who.actor.ref} until the end of {command.until:%Y-%m-%d} (UTC)."
        record(tx, now, who.actor, row.id, EventKind.DELEGATION_MADE, reason=said, key=command.key)
        text = f"{said} You can't approve their requests or your own."
        page = NotificationKind.OPERATOR_PAGE
        await direct_messages.notify(tx, policy, now, row.delegate, subject=row.id, text=text, kind=page)
    ctx.hints.outbox.set()
    return Reply(True, ReplyCode.DELEGATED, said, {"delegation_id": row.id})


async def revoke(ctx: Context, command: Delegate) -> Reply:
    """Revoke the delegations that somebody gave; the next click of the delegate is refused."""
    now, actor = ctx.clock.now(), command.decider.actor
    async with ctx.db.write() as tx:
        await lock_requester(tx, person_key(ctx.policy, actor))
        if await said_before(tx, names_of(ctx.policy, actor), command.key, now - KEPT):
            return REVOKED
        given = await given_by(tx, names_of(ctx.policy, actor), now)
        await end_delegations(tx, [one.id for one in given], actor.ref, now)
        for one in given:
            said = f"{one.delegate} can no longer approve for {one.delegator}."
            record(tx, now, actor, one.id, EventKind.DELEGATION_ENDED, reason=said, key=command.key)
            subject, page = f"{one.id}/ended", NotificationKind.OPERATOR_PAGE
            await direct_messages.notify(tx, ctx.policy, now, one.delegate, subject=subject, text=said, kind=page)
    if not given:
        return refuse(ReplyCode.NO_DELEGATION, "You have no delegate.")
    ctx.hints.outbox.set()
    return REVOKED


async def listing(ctx: Context, actor: Actor, *, everything: bool = False) -> list[Delegation]:
    """List the delegations in force: one's own in both directions, or all."""
    async with ctx.db.read() as tx:
        whose = None if everything else names_of(ctx.policy, actor)
        return list(await in_force(tx, whose, ctx.clock.now()))


def said(rows: list[Delegation]) -> str:
    """Return the delegations as one sentence each."""
    sentences = [
        f"{one.delegate} can approve for {one.delegator} until the end of {_day(one.until):%Y-%m-%d} (UTC)."
        for one in rows
    ]
    return " ".join(sentences) or "There are no delegates."


def _day(until: datetime) -> date:
    return (until.astimezone(UTC) - timedelta(seconds=1)).date()


async def delegators(ctx: Context, actor: Actor) -> list[Actor]:
    """Return the people who delegated to somebody, so that a client can look them up."""
    async with ctx.db.read() as tx:
        rows = await delegators_of(tx, names_of(ctx.policy, actor), ctx.clock.now())
    return [Actor.from_ref(one.delegator) for one in rows]


async def looked_up(ctx: Context, decider: DeciderFacts) -> DeciderFacts:
    """Add what Slack says now about the people who delegated to the decider. Called outside of transactions."""
    if ctx.people is None:
        return decider
    behalf = []
    for one in await delegators(ctx, decider.actor):
        if one.kind is ActorKind.SLACK:
            behalf.append(await ctx.people.looked_up(one))
        else:
            behalf.append(await eligibility.looked_up(ctx, DeciderFacts(one)))
    return replace(decider, behalf=tuple(behalf))


async def with_behalf(tx: Tx, policy: Policy, decider: DeciderFacts, now: datetime) -> DeciderFacts:
    """Return the decider with the people who delegated to them, and what the client knows about each.

    A Slack account that could not be looked up may have been removed, so its delegate cannot decide for it. Where the
    policy names the same person as an operator too, and as an approver under that name, the delegate decides for that
    operator.
    """
    by_own_names = replace(policy, same_person=())
    rows = await delegators_of(tx, names_of(policy, decider.actor), now)
    known = {(one.actor.kind, one.actor.id): one for one in decider.behalf}
    behalf: list[DeciderFacts] = []
    for person in (Actor.from_ref(one.delegator) for one in rows):
        found = known.get((person.kind, person.id)) or DeciderFacts(person, known=person.kind is not ActorKind.SLACK)
        behalf.append(replace(found, actor=person))
        if not found.known:
            operators = [DeciderFacts(one) for one in linked(policy, person) if one.kind is ActorKind.OPERATOR]
            behalf += [one for one in operators if is_approver(by_own_names, one)]
    return replace(decider, behalf=tuple(behalf))
