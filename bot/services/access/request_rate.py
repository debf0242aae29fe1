"""Limit the requests of one person or program within an hour: counted under their lock, from rows that stay.

Requests of a program count for the program. What a person requests for their program, and what their AI agent
requests, counts for that person as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.rules.approvals.approvers import person_key, person_keys
from bot.rules.policy import request_rate
from bot.rules.policy.policy import Policy
from bot.rules.policy.request_rate import FOR_MACHINES, CountedAs
from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import RETRY_AFTER, Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, lock_requester
from ledger.kernel.actor import Actor, ActorKind
from ledger.models import Consumer, CountedRequest
from ledger.queries.people.request_rate import latest_requests


@dataclass(frozen=True, slots=True)
class Askers:
    """Hold the people and programs for whom a request counts, as of a lock that the transaction holds."""

    actors: tuple[Actor, ...]


async def locked(tx: Tx, policy: Policy, actor: Actor, sent_by: Actor | None = None) -> Askers:
    """Let one transaction at a time count and add requests of these people. Taken before anything else."""
    actors = [one for one in (actor, sent_by) if one is not None]
    if actor.kind is ActorKind.AGENT and (holder := await tx.get(Consumer, actor.ref)) is not None:
        actors.append(Actor.from_ref(holder.owner))
    # In one order, so that two transactions never wait for each other.
    people = {person_key(policy, one): one for one in actors}
    for key in sorted(people):
        await lock_requester(tx, key)
    return Askers(tuple(people.values()))


async def refusal(
    ctx: Context, tx: Tx, askers: Askers, now: datetime, counted: CountedAs = FOR_MACHINES
) -> Reply | None:
    """Refuse one more request of any of these people within the hour, and say when the next one is possible."""
    most, since = ctx.policy.max_requests_per_hour, now - request_rate.WINDOW
    for actor in askers.actors:
        latest = await latest_requests(tx, person_keys(ctx.policy, actor), since, most, counted.key)
        if too_many := request_rate.refusal(latest, most, now, counted):
            data = {RETRY_AFTER: too_many.retry_after_s}
            return refuse(ReplyCode.TOO_MANY_REQUESTS, too_many.sentence, data)
    return None


def count(tx: Tx, askers: Askers, request_id: str, now: datetime, counted: CountedAs = FOR_MACHINES) -> None:
    """Count a request for each of these people."""
    for actor in askers.actors:
        person = f"{actor.kind}:{actor.id}"
        tx.add(CountedRequest(request_id=request_id, person=person, counted_as=counted.key, at=now))
