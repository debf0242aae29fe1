"""Serve operators: audit log, preflight checks, instances, orphans, unreachable accounts, bills and measured runs."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from bot.api.dependencies import Admin, Decider, Deps, RequestReader, SessionReader, refusals
from bot.api.idempotency import Repeat, once
from bot.api.problems import FieldProblem, ProblemRaised
from bot.api.routes.requests import Limit, RequestParam, done, found
from bot.api.schemas.base import Done, ReasonIn
from bot.api.schemas.operators import (
    AcceptIn,
    AdoptIn,
    AuditOut,
    ConfirmBillIn,
    EventOut,
    GoneIn,
    InstanceOut,
    ListingOut,
    OrphanOut,
    PreflightOut,
    RecoveredOut,
    RunIn,
    UnconfirmedBillOut,
    UnreachableOut,
)
from bot.api.schemas.sessions import RunOut, StatedRateOut
from bot.rules.access.scopes import BadHolder, person
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.instances import recovery_mode
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.facet import plain
from bot.rules.jobs.words import hours_of
from bot.rules.values.bad_word import BadWord
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.audit import journal
from bot.services.billing import bill_confirmation
from bot.services.instances import reconcile, unreachable_accounts
from bot.services.instances.adoption import Adopt, adopt_orphan
from bot.services.plans import run_history
from bot.services.plans.job_file import BadJob, read_job
from bot.services.recovery import acceptance
from bot.services.runtime import recovery_mode as runtime_recovery_mode
from bot.services.runtime.commands import Reply
from ledger.kernel.states import OrphanState
from ledger.queries.access import owned_sessions
from ledger.queries.lookups import instances_page
from ledger.queries.orphans import every_orphan
from ledger.queries.recovery.older import recovery
from providers.contract import Preflight
from providers.registry import REGISTRY

router = APIRouter(prefix="/api/v1", tags=["operators"])
OrphanId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_]{4,64}$", examples=["str_01k9x7m2q4d8s3f5"], description="The id of the orphan.")
]
BilledId = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_]{4,64}$",
        examples=["ins_01k9x7m2q4d8s3f5"],
        description="The id of the ended instance or orphan.",
    ),
]


@router.get("/audit/{request}", responses=refusals(404))
async def audit(deps: Deps, who: RequestReader, request: RequestParam) -> AuditOut:
    """Show what happened to a request or session, in order, and verify its hash chain."""
    ctx, facts = deps.ctx, await authorization.looked_up(deps.ctx, who)
    try:
        async with ctx.db.read() as tx:
            row, until = await authorization.find_journal(tx, ctx.policy, who, request, ctx.clock.now(), facts)
    except LookupError as error:
        raise ProblemRaised(authorization.refusal(error)) from error
    log = await journal.audit(ctx.db, row.id, until)
    people = {ref: ctx.names.of(ctx.policy, ref) for ref in {event.actor for event in log.events}}
    events = [EventOut.of(event, actor_name=people[event.actor]) for event in log.events]
    return AuditOut.of(log, events=events)


@router.get("/preflight", responses=refusals())
async def preflight(deps: Deps, who: RequestReader) -> list[PreflightOut]:
    """Check whether each cloud can be bought from now; a check is at most a minute old.

    A cloud without its key is listed too, as not configured, with the settings that it needs.
    """
    ctx = deps.ctx
    everything = authorization.sees_all(ctx.policy, who)
    checked = await asyncio.gather(*(ctx.catalog.checks.check(name) for name in ctx.clouds))
    answers = [
        PreflightOut.of(one, configured=True, credit_usd=one.balance.credit_usd if one.balance and everything else None)
        for one in checked
    ]
    for name, entry in REGISTRY.items():
        if name not in ctx.providers:
            unset = Preflight(name, ok=False, missing=entry.env_vars, where=entry.where, problem=f"Set {entry.needs}.")
            answers.append(PreflightOut.of(unset, configured=False, credit_usd=None))
    return answers


@router.get("/instances", responses=refusals())
async def instances(
    deps: Deps,
    who: SessionReader,
    live: Annotated[bool, Query(description="Only those that may exist at a cloud.")] = True,
    limit: Limit = 50,
) -> list[InstanceOut]:
    """List the instances of the sessions that this key may see, the newest first."""
    async with deps.ctx.db.read() as tx:
        names = await authorization.visible(tx, deps.ctx.policy, who)
        rows = await instances_page(tx, whose=names, live=live, limit=limit)
    return [InstanceOut.model_validate(row) for row in rows]


@router.get("/orphans", responses=refusals())
async def orphans(deps: Deps, _who: Admin) -> list[OrphanOut]:
    """List every orphan, the quarantined ones first."""
    async with deps.ctx.db.read() as tx:
        return [OrphanOut.model_validate(row) for row in await every_orphan(tx)]


@router.post("/orphans/{orphan}/condemn", responses=refusals(404, 409))
async def condemn(deps: Deps, who: Admin, orphan: OrphanId, body: ReasonIn) -> Done:
    """Terminate a quarantined orphan.

    Recovery mode ends when none is quarantined any more.
    """
    return done(await runtime_recovery_mode.condemn(deps.ctx.db, orphan, who.actor, body.reason, deps.ctx.clock.now()))


@router.post("/orphans/{orphan}/adopt", response_model=Done, responses=refusals(404, 409))
async def adopt(deps: Deps, who: Decider, orphan: OrphanId, body: AdoptIn, key: Repeat) -> Any:
    """Adopt a quarantined orphan as a session: an approval like that of a request. Its hours count from now."""
    ctx = deps.ctx

    async def adopt_once(name: str) -> tuple[int, Done]:
        try:
            hours = hours_of(plain(body.hours), ctx.policy)
            owner = person(body.owner) if body.owner else who.actor
        except (BadWord, BadHolder) as error:
            raise ProblemRaised(Reply(False, ReplyCode.BAD_WORD, str(error))) from error
        decider, channel = DeciderFacts(who.actor), deps.settings.channel
        command = Adopt(orphan, hours, decider, owner, body.reason, channel, name, body.amount)
        reply = await adopt_orphan(ctx, command)
        session = reply.data.get("session_id")
        return 200, done(reply, url=f"/api/v1/sessions/{session}" if session else "")

    return await once(deps, who, key, f"POST /orphans/{orphan}/adopt {body.model_dump_json()}", adopt_once)


@router.get("/unreachable", responses=refusals())
async def unreachable_list(deps: Deps, _who: Admin) -> list[UnreachableOut]:
    """List open instances of accounts for which no key is set up; nothing here can see or terminate them."""
    ctx = deps.ctx
    there = await unreachable_accounts.unreachable(ctx)
    return [UnreachableOut.of(one, owner_name=ctx.names.of(ctx.policy, one.owner)) for one in there]


@router.post("/unreachable/gone", responses=refusals(404, 409, 503))
async def unreachable_gone(deps: Deps, who: Admin, body: GoneIn) -> Done:
    """Write off instances in unreachable accounts, all of them or none.

    Refused while a cloud lists one of them or its agent checks in.
    """
    return done(await unreachable_accounts.write_off(deps.ctx, body.ids, who.actor, body.reason))


@router.get("/bills", responses=refusals())
async def unconfirmed_bills(deps: Deps, _who: Admin) -> list[UnconfirmedBillOut]:
    """List the bills that are above what their instances can have cost, and that wait for an operator."""
    return [UnconfirmedBillOut.model_validate(one) for one in await bill_confirmation.unconfirmed(deps.ctx)]


@router.post("/bills/{bill}/confirm", responses=refusals(404, 409))
async def confirm_bill(deps: Deps, who: Admin, bill: BilledId, body: ConfirmBillIn) -> Done:
    """Correct the ledger by a bill that you checked. Refused when the bill says another amount by now."""
    return done(await bill_confirmation.confirm(deps.ctx, bill, body.amount, who.actor, body.reason))


@router.post("/recover", responses=refusals())
async def recover(deps: Deps, _who: Admin) -> RecoveredOut:
    """List the instances at every cloud now, and quarantine each one with our label that the ledger does not know."""
    ctx = deps.ctx
    looks = await asyncio.gather(*(reconcile.observe(ctx, name) for name in ctx.providers))
    older = await acceptance.older_facts(ctx)
    async with ctx.db.read() as tx:
        rows = [row for row in await every_orphan(tx) if row.state is OrphanState.QUARANTINED]
        waits = await recovery(tx)
    return RecoveredOut(
        clouds=[ListingOut.of(look, cloud=name) for name, look in zip(ctx.providers, looks, strict=True)],
        waiting=[OrphanOut.model_validate(row) for row in rows],
        paused=recovery_mode.recovery_notice(waits.unknown, is_older=waits.older_since is not None),
        older=older.sentences if older is not None else [],
    )


@router.post("/recover/accept", responses=refusals(404, 409))
async def accept(deps: Deps, who: Admin, body: AcceptIn) -> Done:
    """Accept a ledger that is older than its records, and buy again.

    Earlier approvals that have bought nothing in it are void, because they may have bought something since.
    """
    ctx = deps.ctx
    looks = await asyncio.gather(*(reconcile.observe(ctx, name) for name in ctx.providers))
    unlisted = {name for name, look in zip(ctx.providers, looks, strict=True) if look.problem}
    return done(await acceptance.accept(ctx, acceptance.Accept(who.actor, body.keep_approvals), unlisted))


@router.get("/runs", responses=refusals())
async def runs(deps: Deps, who: RequestReader) -> list[RunOut]:
    """List the measured runs of this installation, the newest first; they correct every plan."""
    ctx = deps.ctx
    measured = await run_history.measured_runs(ctx.db)
    ids = {one.session_id for one in measured if one.session_id}
    async with ctx.db.read() as tx:
        names = await authorization.visible(tx, ctx.policy, who)
        known = ids if names is None else await owned_sessions(tx, ids, names)
    return [
        RunOut.of(
            one,
            gpu=one.run.gpu,
            gpu_count=one.count,
            measured_tokens_s=Decimal(one.run.measured_tokens_s),
            predicted_tokens_s=Decimal(one.run.predicted_tokens_s),
            stated=None if one.stated is None else StatedRateOut.model_validate(one.stated),
            session_id=one.session_id if one.session_id in known else "",
            request_id=one.request_id if one.session_id in known else "",
        )
        for one in measured
    ]


@router.post("/runs", status_code=201, responses=refusals(404, 409))
async def record_run(deps: Deps, who: Admin, body: RunIn) -> Done:
    """Record the measured rate of a finished run.

    It corrects everybody's plans, so only an administrator may record it.
    """
    ctx, now = deps.ctx, deps.ctx.clock.now()
    if (body.session is None) is (body.job is None):
        raise ProblemRaised(Reply(False, ReplyCode.BAD_WORD, "Say either the session or the job of the run."))
    if body.session is not None:
        row, *_ = await found(deps, who, body.session)
        return done(await run_history.record_session(ctx.db, row.id, body.tokens_s, who.actor, now))
    try:
        job = read_job(body.job or JobDocument(), ctx.policy, "plan")
    except BadJob as error:
        wrong = [FieldProblem(field=f"job.{error.field}", sentence=str(error))]
        raise ProblemRaised(Reply(False, error.code, str(error)), fields=wrong) from error
    if len(job.gpu.names) != 1 or job.gpu.count_min != job.gpu.count_max or not job.work:
        sentence = "Say one GPU with its number, and the run: 8xH100-SXM model=7B seq=2048."
        raise ProblemRaised(Reply(False, ReplyCode.BAD_WORD, sentence))
    (name,) = job.gpu.names
    return done(await run_history.record_run(ctx.db, job.work, name, job.gpu.count_min, body.tokens_s, who.actor, now))
