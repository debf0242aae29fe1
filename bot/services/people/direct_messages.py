"""Send a message to the person behind an owner, whichever interface they used.

A session that was requested over REST, on the command line or by a program has a person as well, and this module is
the only one that finds their Slack account.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from bot.rules.approvals.approvers import slack_account
from bot.rules.policy.policy import Policy
from ledger.core import Tx, announce
from ledger.kernel.actor import Actor
from ledger.kernel.states import NotificationKind
from ledger.models import Session
from ledger.queries.access import answering_for


async def slack_user(tx: Tx, policy: Policy, owner: str) -> str | None:
    """Return the Slack user who answers for what `owner`, an actor's reference, has; None where nobody is known.

    A program's things are those of the person who answers for it.
    """
    return (await slack_users(tx, policy, [owner]))[owner]


async def slack_users(tx: Tx, policy: Policy, owners: Collection[str]) -> dict[str, str | None]:
    """Return the Slack users who answer for what each of these owners has, read by one query at most."""
    programs = [owner for owner in owners if Actor.from_ref(owner).is_program]
    people = {owner: owner for owner in owners if owner not in programs}
    people |= await answering_for(tx, programs) if programs else {}
    return {
        owner: slack_account(policy, Actor.from_ref(people[owner])) if owner in people else None for owner in owners
    }


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
