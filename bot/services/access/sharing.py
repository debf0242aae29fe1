"""Share a request's machine with other people: their keys go onto it, and they see the session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.rules.approvals.approvers import Deed, is_same, linked
from bot.rules.policy.job_bounds import MOST_SHARED
from bot.rules.policy.policy import Policy
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import no_key
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.state_text import state_words
from bot.services.access import authorization, ssh_keys
from bot.services.notifications.request_message import show_again
from bot.services.people import direct_messages, eligibility
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, lock_family, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.kernel.job import JobRequest
from ledger.kernel.states import UNDECIDED, RequestState
from ledger.models import Request, Share
from ledger.queries.access import Whose, shared_with
from ledger.queries.views import resolve


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
    for ref in request.job.share:
        await _add(tx, policy, request, by, ref, now)


async def _add(tx: Tx, policy: Policy, request: Request, by: Actor, ref: str, now: datetime) -> None:
    tx.add(Share(request_id=request.id, person=ref, shared_by=by.ref, created_at=now))
    said = f"{by.ref} shares it with {ref}."
    record(tx, now, by, request.id, EventKind.REQUEST_SHARED, reason=said, data={"person": ref})
    short, has_key = short_id(request.id), await ssh_keys.keys_of(tx, policy, Actor.from_ref(ref))
    needs = "" if has_key else f" {no_key('You have', ssh_keys.ADDS)}. Add one before it is launched."
    text = (
        f"{by.ref} shares request {short} with you. Your SSH keys go onto its machine. "
        f"To see how far it is: {cli_command(f'session {short}')}.{needs}"
    )
    await direct_messages.notify(tx, policy, now, ref, subject=f"{request.id}/shared/{ref}", text=text)


@dataclass(frozen=True, slots=True)
class ShareWith:
    """Share what an id names with a person, or no longer (`off`)."""

    request: str
    actor: Actor
    person: Actor
    off: bool = False


async def change(ctx: Context, command: ShareWith) -> Reply:
    """Share a request that is not launched yet with one person more, or one less. For its owner only.

    Keys go onto a machine with its create call, so nothing can be changed from the approval on.
    """
    now, ref = ctx.clock.now(), command.person.ref
    if not command.off and (not_them := await eligibility.ineligible_for(ctx, command.person, Deed.READ)):
        return refuse(ReplyCode.BAD_SHARE, f"It can't be shared with {ref}. {not_them.sentence}")
    try:
        async with ctx.db.write() as tx:
            found, _ = await resolve(tx, command.request)
            await lock_family(tx, Request, found.parent_id or found.id)
            request = await tx.get_one(Request, found.parent_id or found.id, populate_existing=True)
            if (wrong := await _refused(ctx, tx, request, command)) is not None:
                return wrong
            known = (await shared_with(tx, [request.id])).get(request.id, ())
            names = Whose.of([command.person, *linked(ctx.policy, command.person)])
            same = [one for one in known if one in names]
            short, data = short_id(request.id), {"request_id": request.id}
            if command.off:
                for one in same:
                    await tx.delete(await tx.get_one(Share, (request.id, one)))
                    said = f"{command.actor.ref} no longer shares it with {one}."
                    record(tx, now, command.actor, request.id, EventKind.REQUEST_UNSHARED, reason=said)
                text = f"Request {short} is not shared with {ref}."
            elif same:
                text = f"Request {short} is shared with {ref} already."
            elif len(known) >= MOST_SHARED:
                return refuse(ReplyCode.BAD_SHARE, f"A machine is shared with {MOST_SHARED} people at most.", data)
            else:
                await _add(tx, ctx.policy, request, command.actor, ref, now)
                text = f"Request {short} is shared with {ref}. Their SSH keys go onto its machine."
            await show_again(tx, request, now)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    ctx.hints.outbox.set()
    return Reply(True, ReplyCode.SHARED, text, data)


async def _refused(ctx: Context, tx: Tx, request: Request, command: ShareWith) -> Reply | None:
    """Return why somebody may not share a request now: it is another's, it is theirs, or its keys are fixed."""
    short, data = short_id(request.id), {"request_id": request.id}
    if request.requester not in await authorization.mine(tx, ctx.policy, command.actor):
        return refuse(ReplyCode.NOT_YOURS, f"Only the owner of {short} can share it.", data)
    owner = Actor.from_ref(request.requester)
    if any(is_same(command.person, one) for one in (owner, *linked(ctx.policy, owner))):
        return refuse(ReplyCode.BAD_SHARE, "The machine is yours already.", data)
    if request.state is RequestState.APPROVED:
        sentence = (
            f"{short} is approved, and keys go onto a machine only at its launch. On a machine that runs, add the "
            f"other person's public key yourself: {cli_command(f'ssh {short}')}, then edit ~/.ssh/authorized_keys."
        )
        return refuse(ReplyCode.LAUNCHED, sentence, data)
    if request.state not in UNDECIDED:
        return refuse(ReplyCode.NOT_WAITING, f"Request {short} is {state_words(request.state)}.", data)
    return None


def is_shared(policy: Policy, people: tuple[str, ...], actor: Actor) -> bool:
    """Whether one of these people is `actor`, under any of their names."""
    return any(ref in Whose.of([actor, *linked(policy, actor)]) for ref in people)
