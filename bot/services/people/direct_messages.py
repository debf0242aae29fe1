"""Send a message to the person behind an owner, whichever interface they used.

A session that was requested over REST, on the command line or by a program has a person as well, and this module is
the only one that finds their Slack account.
"""

from __future__ import annotations

from datetime import datetime

from bot.rules.approvals.approvers import slack_account
from bot.rules.policy.policy import Policy
from ledger.core import Tx, announce
from ledger.kernel.actor import Actor
from ledger.kernel.states import NotificationKind
from ledger.models import Session
from ledger.queries.access import consumer_of


async def slack_user(tx: Tx, policy: Policy, owner: str) -> str | None:
    """Return the Slack user who answers for what `owner`, an actor's reference, has; None where nobody is known.

    A program's things are those of the person who answers for it.
    """
    actor = Actor.from_ref(owner)
    if actor.is_program:
        consumer = await consumer_of(tx, owner)
        if consumer is None:
            return None
        actor = Actor.from_ref(consumer.owner)
    return slack_account(policy, actor)


def fallback(policy: Policy, session: Session) -> tuple[str, ...]:
    """Return who is notified when the owner of a session cannot be reached: the contacts, or the request's channel."""
    return policy.fallback_contacts or (session.channel,)


async def places(tx: Tx, policy: Policy, session: Session) -> tuple[str, ...]:
    """Return where a message for the owner of a session goes: to the person in Slack, or else to the fallback."""
    person = await slack_user(tx, policy, session.owner)
    return fallback(policy, session) if person is None else (person,)


async def notify_owner(tx: Tx, policy: Policy, at: datetime, session: Session, *, subject: str, text: str) -> None:
    """Notify the owner of a session of what no other message says; the fallback where they are not in Slack."""
    for to in await places(tx, policy, session):
        await announce(tx, at, NotificationKind.REPLY, subject, destination=to, body={"text": text})


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
    """Notify the person behind an owner of what the request's message says as well; nobody where not in Slack."""
    to = await slack_user(tx, policy, owner)
    if to is not None:
        await announce(tx, at, kind, subject, destination=to, body={"text": text})
