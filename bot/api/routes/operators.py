"""What operators look at and decide: the journal, the clouds' accounts, instances, strays, and what own runs made."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from bot.api.dependencies import AtDesk, caller, refusals
from bot.api.idempotency import Repeat, once
from bot.api.problems import FieldProblem, ProblemRaised
from bot.api.routes.requests import Limit, RequestParam, done, found
from bot.api.schemas.base import Done, ReasonIn
from bot.api.schemas.operators import (
    AdoptIn,
    AuditOut,
    GoneIn,
    InstanceOut,
    LookedOut,
    PreflightOut,
    RecoveredOut,
    RunIn,
    StrayOut,
    UnreachableOut,
)
from bot.api.schemas.sessions import RunOut
from bot.rules.access.scopes import BadHolder, Scope, person
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.grammar.job_document import JobDocument, plain
from bot.rules.grammar.job_words import BadWord, hours_of
from bot.rules.instances import recovery_mode
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.access.api_keys import Principal
from bot.services.audit import journal
from bot.services.instances import reconcile, unreachable_accounts
from bot.services.instances.adoption import Adopt, adopt_orphan
from bot.services.plans import run_history
from bot.services.plans.job_file import BadJob, read_job
from bot.services.runtime import recovery_mode as runtime_recovery_mode
from bot.services.runtime.commands import Reply
from ledger.kernel.states import OrphanState
from ledger.queries.orphans import every_orphan, unknown_instances
from ledger.queries.views import instances_page

router = APIRouter(prefix="/api/v1", tags=["operators"])
Reader = Annotated[Principal, caller(Scope.REQUESTS_READ)]
Holder = Annotated[Principal, caller(Scope.SESSIONS_READ)]
Admin = Annotated[Principal, caller(Scope.ADMIN)]
Decider = Annotated[Principal, caller(Scope.APPROVALS_WRITE)]
StrayId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_]{4,64}$", examples=["str_01k9x7m2q4d8s3f5"], description="The id of the stray.")
]


@router.get("/audit/{request}", responses=refusals(404))
async def audit(desk: AtDesk, who: Reader, request: RequestParam) -> AuditOut:
    """What happened to a request or session, in order, with its seals checked."""
    row, _ = await found(desk, who, request)
    told = await journal.audit(desk.ctx.db, row.id)
    return AuditOut.model_validate(told)


@router.get("/preflight", responses=refusals())
async def preflight(desk: AtDesk, who: Reader) -> list[PreflightOut]:
    """Whether each cloud that is set up can be bought from now, asked within the last minute."""
    ctx = desk.ctx
    everything = authorization.sees_all(ctx.policy, who)
    checked = await asyncio.gather(*(ctx.catalog.checks.check(name) for name in ctx.providers))
    return [
        PreflightOut(
            cloud=one.cloud,
            ok=one.ok,
            code=one.code,
            problem=one.problem,
            missing=list(one.missing),
            where=one.where,
            credit_usd=one.balance.credit_usd if one.balance and everything else None,
        )
        for one in checked
    ]


@router.get("/instances", responses=refusals())
async def instances(
    desk: AtDesk,
    who: Holder,
    live: Annotated[bool, Query(description="Only those that may exist at a cloud.")] = True,
    limit: Limit = 50,
) -> list[InstanceOut]:
    """The instances of the sessions that this key may see, the newest first."""
    async with desk.ctx.db.read() as tx:
        names = await authorization.visible(tx, desk.ctx.policy, who)
        rows = await instances_page(tx, whose=names, live=live, limit=limit)
    return [InstanceOut.model_validate(row) for row in rows]


@router.get("/strays", responses=refusals())
async def orphans(desk: AtDesk, _who: Admin) -> list[StrayOut]:
    """Every instance of ours without a row of its own, those that wait for an operator first."""
    async with desk.ctx.db.read() as tx:
        return [StrayOut.model_validate(row) for row in await every_orphan(tx)]


@router.post("/strays/{stray}/condemn", responses=refusals(404, 409))
async def condemn(desk: AtDesk, who: Admin, stray: StrayId, body: ReasonIn) -> Done:
    """Say that a waiting instance is to end. Recovery is over when none waits any more."""
    return done(await runtime_recovery_mode.condemn(desk.ctx.db, stray, who.actor, body.reason, desk.ctx.clock.now()))


@router.post("/strays/{stray}/adopt", response_model=Done, responses=refusals(404, 409))
async def adopt(desk: AtDesk, who: Decider, stray: StrayId, body: AdoptIn, key: Repeat) -> Any:
    """Keep a waiting instance as a session: an approval like that of a request. Its hours count from now."""
    ctx = desk.ctx

    async def keep(name: str) -> tuple[int, Done]:
        try:
            hours = hours_of(plain(body.hours), ctx.policy)
            owner = person(body.owner) if body.owner else who.actor
        except (BadWord, BadHolder) as error:
            raise ProblemRaised(Reply(False, ReplyCode.BAD_WORD, str(error))) from error
        decider, channel = DeciderFacts(who.actor), desk.settings.channel
        command = Adopt(stray, hours, decider, owner, body.reason, channel, name, body.amount)
        reply = await adopt_orphan(ctx, command)
        session = reply.data.get("session_id")
        return 200, done(reply, url=f"/api/v1/sessions/{session}" if session else "")

    return await once(desk, who, key, f"POST /strays/{stray}/adopt {body.model_dump_json()}", keep)


@router.get("/unreachable", responses=refusals())
async def unreachable_list(desk: AtDesk, _who: Admin) -> list[UnreachableOut]:
    """What is open in accounts that no key which is set up here opens: nothing can look at it or end it."""
    return [UnreachableOut.model_validate(one) for one in await unreachable_accounts.unreachable(desk.ctx)]


@router.post("/unreachable/gone", responses=refusals(404, 409, 503))
async def unreachable_gone(desk: AtDesk, who: Admin, body: GoneIn) -> Done:
    """Say that these no longer exist, all of them or none. Refused while a cloud or their agents say otherwise."""
    return done(await unreachable_accounts.write_off(desk.ctx, body.ids, who.actor, body.reason))


@router.post("/recover", responses=refusals())
async def recover(desk: AtDesk, _who: Admin) -> RecoveredOut:
    """Look at every cloud now: what carries our label and has no row here waits for an operator's word."""
    ctx = desk.ctx
    looks = await asyncio.gather(*(reconcile.observe(ctx, name) for name in ctx.providers))
    async with ctx.db.read() as tx:
        rows = [row for row in await every_orphan(tx) if row.state is OrphanState.QUARANTINED]
        held = recovery_mode.recovery_notice(await unknown_instances(tx))
    return RecoveredOut(
        clouds=[
            LookedOut(cloud=name, listed=look.listed, problem=look.problem)
            for name, look in zip(ctx.providers, looks, strict=True)
        ],
        waiting=[StrayOut.model_validate(row) for row in rows],
        held=held,
    )


@router.get("/runs", responses=refusals())
async def runs(desk: AtDesk, _who: Reader) -> list[RunOut]:
    """What this installation's own runs made, the newest first; every plan is corrected by it."""
    return [
        RunOut(
            at=one.at,
            gpu=one.run.gpu,
            gpu_count=one.count,
            words=list(one.words),
            session_id=one.session_id,
            measured_tokens_s=Decimal(one.run.measured_tokens_s),
            predicted_tokens_s=Decimal(one.run.predicted_tokens_s),
        )
        for one in await run_history.measured_runs(desk.ctx.db)
    ]


@router.post("/runs", status_code=201, responses=refusals(404, 409))
async def record_run(desk: AtDesk, who: Admin, body: RunIn) -> Done:
    """Record what a finished run made. It corrects the plans of everybody, so an administrator says it."""
    ctx, now = desk.ctx, desk.ctx.clock.now()
    if (body.session is None) is (body.job is None):
        raise ProblemRaised(Reply(False, ReplyCode.BAD_WORD, "Say either the session or the job of the run."))
    if body.session is not None:
        row, _ = await found(desk, who, body.session)
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
