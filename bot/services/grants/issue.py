"""Issue the spend authority of an approval in its own transaction: a session, and a grant and an intent per machine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from bot.rules.checkpoints.verification import reserved_usd
from bot.rules.instances.failover import LimitWait
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.market.node_sets import of_one
from bot.rules.values.labels import human_part, instance_name
from bot.services.grants import amendments, reservations
from bot.services.market.codec import estimate_from_json, offer_from_json, offer_to_json
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, record
from ledger.kernel import money
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Approval, GrantRow, Instance, Option, Request, Session
from ledger.queries.lookups import is_label_taken, next_numbers, session_of
from providers.contract import GPU_MAX, Offer


async def grant_create(
    ctx: Context, tx: Tx, request: Request, approval: Approval, option: Option, now: datetime
) -> None:
    """Turn an approval into the authority for its creates: reserve its cap, and write the intent that uses it.

    Each machine of a set has a create of its own, and an equal share of the cap. All of them are in this transaction.
    """
    session = await _session(ctx, tx, request, approval, option, now)
    for rank in range(session.nodes):
        grant = await _grant(ctx, tx, request, approval, session, now)
        await reservations.reserve(tx, grant, now)
        # A shortened time costs less for the run, while the checkpoint hold keeps its full reservation.
        run_usd, _ = amendments.amounts(request, option, Decimal(grant.hours))
        node_rank = rank if session.nodes > 1 else None
        await intend(ctx, tx, request, session.id, grant, option, now, run_usd, node_rank)


async def _session(
    ctx: Context, tx: Tx, request: Request, approval: Approval, option: Option, now: datetime
) -> Session:
    """Return the session of a request: a new one, or the one that waited while the request was quoted again."""
    job, waiting = job_of(request.job), await session_of(tx, request.id)
    hours = approval.hours or str(job.hours)
    if waiting is not None:
        await amend(tx, Session, waiting.id, hours=hours)
        return waiting
    offer, volume = offer_from_json(option.offer), job.makes_volume
    session = Session(
        id=new_id("ses", now),
        request_id=request.id,
        state=SessionState.QUEUED,
        owner=request.requester,
        channel=request.channel,
        hours=hours,
        created_at=now,
        label=job.label or ctx.policy.project,
        # A set has no replacements: it runs whole, or it ends.
        replacements_left=ctx.policy.replacements if ctx.policy.failover and offer.nodes == 1 and not volume else 0,
        gpu=offer.gpu[:GPU_MAX],
        gpu_count=offer.gpu_count,
        nodes=offer.nodes,
        dealt_commands=len(job.queue) if offer.nodes > 1 else 0,
    )
    tx.add(session)
    await tx.flush()
    return session


async def _grant(
    ctx: Context, tx: Tx, request: Request, approval: Approval, session: Session, now: datetime
) -> GrantRow:
    if approval.price_cap_usd_h is None or approval.total_cap_usd is None:
        raise ValueError(f"approval {approval.id} covers no amount")
    return await reservations.new_grant(
        tx,
        GrantKind.CREATE,
        request_id=request.id,
        approval_id=approval.id,
        session_id=session.id,
        price_cap_usd_h=money.share(approval.price_cap_usd_h, session.nodes),
        total_cap_usd=money.share(approval.total_cap_usd, session.nodes),
        hours=approval.hours or str(job_of(request.job).hours),
        until=now + timedelta(seconds=ctx.policy.request_ttl_s),
        now=now,
    )


async def intend(
    ctx: Context,
    tx: Tx,
    request: Request,
    session_id: str,
    grant: GrantRow,
    option: Option,
    now: datetime,
    run_usd: Decimal | None = None,
    node_rank: int | None = None,
) -> Instance:
    """Write the intent of one create call; its label is fixed before anything is sent.

    `run_usd` is what is still to be paid for the run, where it is less than the option's expected total. The option of
    a set is about all of its machines, and `node_rank` is the place of this one.
    """
    costs = estimate_from_json(option.estimate)
    run_usd = option.expected_usd if run_usd is None else min(option.expected_usd, run_usd)
    together = offer_from_json(option.offer)
    offer, nodes = of_one(together), together.nodes
    columns = {
        "session_id": session_id,
        "grant_id": grant.id,
        "option_id": option.id,
        "offer": option.offer if nodes == 1 else offer_to_json(offer),
        "node_rank": node_rank,
        "price_usd_h": money.share(option.price_usd_h, nodes),
        "storage_usd_h": offer.storage_usd_h,
        "hold_usd": reserved_usd(money.share(costs.hold_usd, nodes), grant.total_cap_usd, money.share(run_usd, nodes)),
        "hold_s": int(costs.hold_hours * 3600),
        "due_at": now,
    }
    return await _intended(ctx, tx, request, offer, now, columns)


#: What a repeated create takes over from the row of the refused one.
_REPEATED = (
    "session_id", "grant_id", "option_id", "offer", "node_rank", "price_usd_h", "storage_usd_h", "hold_usd", "hold_s"
)  # fmt: skip


async def intend_again(ctx: Context, tx: Tx, refused: Instance, wait: LimitWait, now: datetime) -> Instance:
    """Write the intent of a create that its cloud refused for now once more, under the same grant and a new label."""
    request = await tx.get_one(Request, refused.request_id)
    columns = {name: getattr(refused, name) for name in _REPEATED}
    columns |= {"due_at": wait.until, "limited_at": wait.since, "limited_until": wait.until}
    return await _intended(ctx, tx, request, offer_from_json(refused.offer), now, columns)


async def _intended(
    ctx: Context, tx: Tx, request: Request, offer: Offer, now: datetime, columns: Mapping[str, Any]
) -> Instance:
    """Add the row of one create call, with its label and name, and its event."""
    provider = ctx.providers[offer.cloud]
    able = provider.capabilities
    n, label = await _free_label(ctx, tx, request.id)
    instance = Instance(
        id=new_id("ins", now),
        request_id=request.id,
        n=n,
        state=InstanceState.READY,
        cloud=offer.cloud,
        account=provider.account,
        label=label,
        name=instance_name(_human(ctx, job_of(request.job), offer), label, able.name_max, able.name_extra_chars),
        created_at=now,
        machine_id=offer.machine_id,
        **columns,
    )
    tx.add(instance)
    await tx.flush()
    record(
        tx,
        now,
        Actor.from_ref(request.decided_by or request.requester),
        instance.id,
        EventKind.INSTANCE_INTENDED,
        after=instance.state,
        reason=label,
    )
    return instance


async def _free_label(ctx: Context, tx: Tx, request_id: str) -> tuple[int, str]:
    """Return the next number of a request's instances, and its label.

    After a restore of the ledger, an instance of this request may be an orphan, or be adopted by another request. Then
    its label is taken, although the request has no row with that number.
    """
    _, n = await next_numbers(tx, request_id, GrantKind.CREATE)
    while await is_label_taken(tx, label := ctx.labels.mint(request_id, n)):
        n += 1
    return n, label


def _human(ctx: Context, job: JobRequest, offer: Offer) -> str:
    """Return the readable part of a name: by the policy's template, or by the name that a volume has."""
    if job.makes_volume:
        return f"volume-{job.makes_volume}"
    project = job.label or ctx.policy.project
    return human_part(ctx.policy.name_template, project, job.model, offer.gpu_count, offer.gpu)
