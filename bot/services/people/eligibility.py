"""Judge whether the person behind an actor may request, approve or hold a key, by what Slack says of them now.

Slack is called outside of transactions. Without a Slack connection nobody can be looked up, and everybody is eligible.
"""

from __future__ import annotations

from dataclasses import replace

from bot.rules.approvals.approvers import DeciderFacts, Deed, ineligible, linked
from bot.rules.values.phrases import Verdict
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor, ActorKind
from ledger.queries.access import consumer_of


async def responsible_for(ctx: Context, actor: Actor) -> Actor:
    """Return the person who answers for an actor: a program's owner; anybody else for themselves."""
    if not actor.is_program:
        return actor
    async with ctx.db.read() as tx:
        consumer = await consumer_of(tx, actor.ref)
    return Actor.from_ref(consumer.owner) if consumer is not None else actor


async def looked_up(ctx: Context, facts: DeciderFacts) -> DeciderFacts:
    """Add what Slack says now of the person behind an operator or a program, whom a key or a shell has named.

    The accounts are those that the policy names under `same_person`. Of several, one that is a member's counts. An
    operator has the user groups of these accounts, too; a program has none of its owner's.
    """
    if ctx.people is None or facts.actor.kind is ActorKind.SLACK:
        return facts
    found = await _of_slack(ctx, await responsible_for(ctx, facts.actor))
    if found is None:
        return facts
    groups = facts.groups if facts.actor.is_program else (*facts.groups, *found.groups)
    return replace(found, actor=facts.actor, groups=groups, behalf=facts.behalf)


async def facts_of(ctx: Context, actor: Actor) -> DeciderFacts:
    """Return what Slack says now of a person under any of their names, with their user groups."""
    found = await _of_slack(ctx, actor)
    return DeciderFacts(actor) if found is None else replace(found, actor=actor)


async def refused(ctx: Context, who: DeciderFacts, deed: Deed) -> Verdict | None:
    """Return why somebody may not do this, by what their client and Slack say of them now; None when they may."""
    return ineligible(ctx.policy, await looked_up(ctx, who), deed)


async def ineligible_for(ctx: Context, actor: Actor, deed: Deed) -> Verdict | None:
    """Return why the person behind an actor may not do this now; None when they may."""
    found = await _of_slack(ctx, await responsible_for(ctx, actor))
    return None if found is None else ineligible(ctx.policy, found, deed)


async def _of_slack(ctx: Context, person: Actor) -> DeciderFacts | None:
    """Return what Slack says of a person; None where nobody can say it, or where they have no account there."""
    if ctx.people is None:
        return None
    own = [person] if person.kind is ActorKind.SLACK else []
    accounts = own or [one for one in linked(ctx.policy, person) if one.kind is ActorKind.SLACK]
    found = [await ctx.people.looked_up(one) for one in accounts]
    members = (one for one in found if ineligible(ctx.policy, one, Deed.APPROVE) is None)
    return next(members, found[0] if found else None)
