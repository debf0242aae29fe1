"""Repeat an earlier request as a new one of the person who repeats it, through the usual path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from bot.rules.access.sight import Sight
from bot.rules.approvals.approvers import Deed, is_same, linked
from bot.rules.checkpoints.verification import place
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.sight import job_in_sight
from bot.rules.jobs.stored import job_of
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.grants import authority
from bot.services.people import eligibility
from bot.services.requests import submit
from bot.services.runtime.commands import Provision, Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx
from ledger.kernel.actor import Actor
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind
from ledger.models import Request
from ledger.queries.access import Whose
from ledger.queries.lookups import latest_request
from ledger.queries.people.credentials import credentials_of, has_left_secrets, own_key, secret_names
from ledger.queries.people.shares import shares_of

NOTHING = refuse(
    ReplyCode.NOTHING_TO_REPEAT, f"You have no earlier request. Make one: {cli_command('provision 4090 2h')}."
)


async def _asked_anew(tx: Tx, request_id: str, job: JobRequest) -> JobRequest:
    """Return the job with the people who are on the session now, without those who were removed or gave it away."""
    mine = (await credentials_of(tx, [request_id])).get(request_id, ())
    people = tuple(share.person for share in await shares_of(tx, request_id))
    return replace(job, public_key=own_key(mine), share=people, secrets=secret_names(mine))


@dataclass(frozen=True, slots=True)
class Again:
    """Repeat a request that the client found and may see; None: the newest of the actor's own."""

    key: str
    actor: Actor
    channel: str
    request: Request | None = None
    by_agent: bool = False
    #: How much of it the actor sees: nothing else is repeated.
    sight: Sight = Sight.OWN


async def again(ctx: Context, command: Again) -> Reply:
    """Submit the same job as a new request. Codes and sentences are those of a request, and it is judged like one."""
    people = (command.actor, *linked(ctx.policy, command.actor))
    async with ctx.db.read() as tx:
        earlier = command.request or await latest_request(tx, Whose.of(people))
        if earlier is not None and earlier.parent_id is not None and earlier.kind is not RequestKind.PROVISION:
            earlier = await tx.get(Request, earlier.parent_id)
    if earlier is None:
        return NOTHING
    job = job_in_sight(replace(job_of(earlier.job), already_hours=Decimal(0)), command.sight)
    work = "" if command.sight.shows_work else " What it runs, and on which image, is left out."
    if job.volume:  # It is found again by its name, wherever it is now.
        job = replace(job, candidates=(), regions=(), volume_session=None)
    # The person who asked first has a key of their own, and shares their machine with people of their choice. Their
    # command gets no secrets of somebody else: the person who repeats it may not have read it.
    async with ctx.db.read() as tx:
        owner = Actor.from_ref((await tx.get_one(Request, earlier.id)).requester)  # It may have been given away since.
        job = await _asked_anew(tx, earlier.id, job) if any(is_same(owner, one) for one in people) else job
        without = " Its secrets are left out." if not job.secrets and await has_left_secrets(tx, earlier.id) else ""
    gone = [ref for ref in job.share if await eligibility.ineligible_for(ctx, Actor.from_ref(ref), Deed.READ)]
    job = replace(job, share=tuple(ref for ref in job.share if ref not in gone))
    without += f" It is not shared with {', '.join(gone)}." if gone else ""
    # From its checkpoint it is the same run, which approvers judge as a whole. Without a store its work begins anew.
    run_id = authority.run_of(earlier) if place(job.checkpoint) is not None else None
    asks = Provision(command.key, command.actor, command.channel, job, run_id, command.by_agent)
    reply = await submit.provision(ctx, asks)
    if not reply.ok:
        return reply
    return replace(reply, sentence=f"Again as {short_id(earlier.id)}.{work}{without} {reply.sentence}")
