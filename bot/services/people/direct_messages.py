"""Send a direct message to the person behind an owner, whichever interface they used."""

from __future__ import annotations

from datetime import datetime

from bot.rules.approvals.approvers import linked
from bot.rules.policy.policy import Policy
from ledger.core import Tx, announce
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import NotificationKind
from ledger.queries.access import consumer_of


async def slack_user(tx: Tx, policy: Policy, owner: str) -> str | None:
    """Return the Slack user who answers for what `owner`, an actor's reference, has; None where nobody is known.

    A program's things are those of the person who answers for it. An operator's account is the first Slack account
    that the policy names beside them under `same_person`.
    """
    actor = Actor.from_ref(owner)
    if actor.is_program:
        consumer = await consumer_of(tx, owner)
        if consumer is None:
            return None
        actor = Actor.from_ref(consumer.owner)
    people = (actor, *linked(policy, actor))
    return next((one.id for one in people if one.kind is ActorKind.SLACK), None)


async def notify(
    tx: Tx,
    policy: Policy,
    at: datetime,
    owner: str,
    *,
    subject: str,
    text: str,
    kind: NotificationKind = NotificationKind.REPLY,
) -> None:
    """Notify the person behind an owner directly; nobody where they are not in Slack."""
    to = await slack_user(tx, policy, owner)
    if to is not None:
        await announce(tx, at, kind, subject, destination=to, body={"text": text})
