"""Share a request's machine with other people: their keys go onto it, and they see the session."""

from __future__ import annotations

from datetime import datetime

from bot.rules.approvals.approvers import Deed, is_same, linked
from bot.rules.policy.policy import Policy
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import no_key
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import ssh_keys
from bot.services.people import direct_messages, eligibility
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.job import JobRequest
from ledger.models import Request, Share
from ledger.queries.access import Whose


async def refusal(ctx: Context, owner: Actor, job: JobRequest) -> Reply | None:
    """Return why a job can't be shared with the people that it names; None when it can. Asks Slack about them."""
    for ref in job.share:
        person = Actor.from_ref(ref)
        if any(is_same(person, one) for one in (owner, *linked(ctx.policy, owner))):
            return refuse(ReplyCode.BAD_SHARE, "The machine is yours already, so leave yourself out of share.")
        if not_them := await eligibility.ineligible_for(ctx, person, Deed.READ):
            sentence = f"It can't be shared with {person.ref}. {not_them.sentence}"
            return refuse(ReplyCode.BAD_SHARE, sentence)
    return None


async def share(tx: Tx, policy: Policy, request: Request, by: Actor, now: datetime) -> None:
    """Store with whom a new request is shared, and notify these people."""
    short = request.id[-6:]
    for ref in request.job.share:
        tx.add(Share(request_id=request.id, person=ref, shared_by=by.ref, created_at=now))
        said = f"{by.ref} shares it with {ref}."
        record(tx, now, by, request.id, EventKind.REQUEST_SHARED, reason=said, data={"person": ref})
        has_key = await ssh_keys.keys_of(tx, policy, Actor.from_ref(ref))
        needs = "" if has_key else f" {no_key(ref, ssh_keys.ADDS)}. Add one before it is launched."
        text = (
            f"{by.ref} shares request {short} with you. Your SSH keys go onto its machine. "
            f"To see how far it is: {cli_command(f'session {short}')}.{needs}"
        )
        await direct_messages.notify(tx, policy, now, ref, subject=f"{request.id}/shared/{ref}", text=text)


def is_shared(policy: Policy, people: tuple[str, ...], actor: Actor) -> bool:
    """Whether one of these people is `actor`, under any of their names."""
    return any(ref in Whose.of([actor, *linked(policy, actor)]) for ref in people)
