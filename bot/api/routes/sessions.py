"""List, show, extend, stop, start, restart and end sessions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, StreamingResponse

from bot.api.dependencies import Dependencies, Deps, SessionOwner, SessionReader, refusals
from bot.api.idempotency import Repeat, once
from bot.api.problems import FieldProblem, ProblemRaised
from bot.api.routes.requests import ID, Cursor, Limit, done, found
from bot.api.schemas.base import Done, Page
from bot.api.schemas.queue import QueueCommandOut, QueueResultsOut
from bot.api.schemas.sessions import DoneIn, ExtendIn, GraceIn, LoginOut, LogOut, MigrateIn, NodeTokenOut, SessionOut
from bot.api.streams import CountedStream, count_one
from bot.api.views import login_out, session_out
from bot.rules.access.sight import Sight
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.grammar.volume_words import time_h
from bot.rules.instances.power import PowerAction
from bot.rules.jobs.facet import plain
from bot.rules.jobs.words import hours_of
from bot.rules.nodes.machine_logs import LINES, LINES_MAX, LogSource
from bot.rules.values.bad_word import BadWord
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.access.api_keys import Principal
from bot.services.billing.true_up import ranges
from bot.services.instances import power
from bot.services.nodes import login, machine_logs, node_api
from bot.services.relocation.start import Migrate, migrate
from bot.services.runtime.commands import AnswerGrace, Extend, Reply, Switch, Terminate
from bot.services.runtime.commands import FinishSession as WorkDone
from bot.services.sessions import extension, grace_answers, queue_overview, service
from ledger.kernel.volume_name import volume_of
from ledger.models import Session
from ledger.queries.views import session_view, sessions_page

router = APIRouter(prefix="/api/v1", tags=["sessions"])
SessionParam = Annotated[
    str,
    Path(
        pattern=ID,
        examples=["req_01k9x7m2q4d8s3f5"],
        description="A session by its id, its request's, or its instance's (also as vast:123).",
    ),
]
LogWhich = Annotated[LogSource, Query(description="Which log.")]
LogLines = Annotated[int, Query(ge=1, le=LINES_MAX, description="How many lines.")]
NO_SESSION = Reply(
    False,
    ReplyCode.NO_SESSION,
    f"That request has no session yet. To see what it waits for: {cli_command('requests --waiting')}.",
)


@router.get("/sessions", responses=refusals())
async def sessions(
    deps: Deps,
    who: SessionReader,
    live: Annotated[bool, Query(description="true: only live sessions; false: ended ones, too.")] = True,
    ended: Annotated[bool, Query(description="true: only sessions that ended.")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[SessionOut]:
    """List the sessions that this key may see, the newest first; `live=false` includes the ended ones."""
    ctx = deps.ctx
    async with ctx.db.read() as tx:
        names = await authorization.visible(tx, ctx.policy, who)
        own = await authorization.mine(tx, ctx.policy, who.actor)
        views = await sessions_page(tx, whose=names, live=live, ended=ended, before=cursor, limit=limit + 1)
        gone = [view.session.id for view in views[:limit] if view.session.ended_at is not None]
        between = await ranges(ctx, tx, gone)
    now = ctx.clock.now()
    items = [
        session_out(ctx, view, now, authorization.listed(own, view.people), between=between.get(view.session.id))
        for view in views[:limit]
    ]
    return Page[SessionOut](items=items, next_cursor=items[-1].id if len(views) > limit else None)


@router.get("/sessions/{session}", responses=refusals(404, 409))
async def session(deps: Deps, who: SessionReader, session: SessionParam) -> SessionOut:
    """Show one session, by its id or by its request's."""
    ctx = deps.ctx
    row, sight = await session_in_sight(deps, who, session, Sight.FACTS)
    async with ctx.db.read() as tx:
        view = await session_view(tx, row.id)
        between = (await ranges(ctx, tx, (row.id,))).get(row.id)
    return session_out(ctx, view, ctx.clock.now(), sight, between=between)


@router.get("/sessions/{session}/commands", responses=refusals(404, 409))
async def commands(deps: Deps, who: SessionReader, session: SessionParam) -> QueueResultsOut:
    """Show the commands of the session's queue: how each ended, and its share of the bill."""
    row = await session_named(deps, who, session)
    found = await queue_overview.queue_results(deps.ctx, row.id, deps.ctx.clock.now())
    items = [
        QueueCommandOut.of(
            one.result,
            number=one.number,
            command=one.command,
            cost_usd=one.cost_usd if one.result is not None else None,
        )
        for one in found.commands
    ]
    return QueueResultsOut(items=items, total_usd=found.total_usd, idle_usd=found.idle_usd)


@router.get("/sessions/{session}/ssh", responses=refusals(404, 409))
async def ssh(deps: Deps, who: SessionReader, session: SessionParam) -> LoginOut:
    """Say how to log in to the session's machine now; refused with the reason when nobody can."""
    row = await session_named(deps, who, session)
    reply = await login.login(deps.ctx, row.id, who.actor)
    if not reply.ok:
        raise ProblemRaised(reply)
    return login_out(reply.data["view"])


@router.get(
    "/sessions/{session}/logs",
    response_model=LogOut,
    responses={**refusals(404, 409, 429), 200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def logs(
    deps: Deps,
    who: SessionReader,
    session: SessionParam,
    source: LogWhich = LogSource.JOB,
    lines: LogLines = LINES,
    follow: Annotated[bool, Query(description="true: also send what is added, as a stream of events.")] = False,
) -> Any:
    """Show the end of a log on the session's machine, for its owner and the people who share it.

    With `follow=true` each event has one `line` as JSON. The stream ends with the session, or after 15 minutes, with an
    event `end` that has the reason as its `sentence`.
    """
    row = await session_named(deps, who, session)
    if follow:
        return await _followed(deps, who, row.id, source, lines)
    reply = await machine_logs.read(deps.ctx, row.id, who.actor, source, lines)
    if not reply.ok:
        raise ProblemRaised(reply)
    return LogOut(source=source, lines=list(reply.data["lines"]))


async def _followed(
    deps: Dependencies, who: Principal, session_id: str, source: LogSource, lines: int
) -> StreamingResponse:
    count_one(deps.streams, who.key_id)
    try:
        begun = await machine_logs.follow(deps.ctx, session_id, who, source, lines)
        if isinstance(begun, Reply):
            raise ProblemRaised(begun)
    except BaseException:
        deps.streams[who.key_id] -= 1
        raise

    async def sent() -> AsyncIterator[str]:
        yield ": connected\n\n"
        async for new in begun.lines():
            yield "".join(f"data: {json.dumps({'line': one})}\n\n" for one in new) or ": nothing new\n\n"
        yield f"event: end\ndata: {json.dumps({'sentence': begun.ended})}\n\n"

    return CountedStream(deps.streams, who.key_id, sent(), "text/event-stream", {"X-Accel-Buffering": "no"})


@router.delete("/sessions/{session}", status_code=202, responses=refusals(404, 409))
async def end(deps: Deps, who: SessionOwner, session: SessionParam) -> Done:
    """End a session now. 202: it is ending, and has ended when its cloud no longer lists the machine."""
    row = await session_named(deps, who, session)
    reply = await service.terminate(deps.ctx, Terminate(row.id, DeciderFacts(who.actor)))
    return done(reply, url=f"/api/v1/sessions/{row.id}")


@router.post("/sessions/{session}/extend", status_code=202, response_model=Done, responses=refusals(404, 409))
async def extend(deps: Deps, who: SessionOwner, session: SessionParam, body: ExtendIn, key: Repeat) -> Any:
    """Request more time. 202: an approver decides on the request that is named; 200: it was approved already."""
    row = await session_named(deps, who, session)
    policy = deps.ctx.policy

    async def request_extension(command: str) -> tuple[int, Done]:
        try:
            said = plain(body.hours)
            hours = time_h(said) if volume_of(row.gpu) else hours_of(said, policy)
        except BadWord as error:
            wrong = [FieldProblem(field="hours", sentence=str(error))]
            raise ProblemRaised(Reply(False, ReplyCode.BAD_WORD, str(error)), fields=wrong) from error
        reply = await extension.extend(deps.ctx, Extend(command, row.id, hours, DeciderFacts(who.actor), body.reason))
        request_id = reply.data.get("request_id")
        url = f"/api/v1/requests/{request_id}" if request_id else f"/api/v1/sessions/{row.id}"
        return 202 if request_id else 200, done(reply, url=url, session_id=row.id)

    return await once(deps, who, key, f"POST /sessions/{row.id}/extend {body.model_dump_json()}", request_extension)


@router.post("/sessions/{session}/migrate", status_code=202, response_model=Done, responses=refusals(404, 409))
async def move(deps: Deps, who: SessionOwner, session: SessionParam, body: MigrateIn, key: Repeat) -> Any:
    """Move the session's run to another machine. 202: it looks for one, and an approver decides on that request.

    Nothing changes on the session's own machine until the new one is approved and ready.
    """
    row = await session_named(deps, who, session)

    async def request_move(command: str) -> tuple[int, Done]:
        asks = Migrate(command, row.id, DeciderFacts(who.actor), plain(body.to), who.is_agent)
        reply = await migrate(deps.ctx, asks)
        return 202, done(reply, url=f"/api/v1/requests/{reply.data.get('request_id')}", session_id=row.id)

    return await once(deps, who, key, f"POST /sessions/{row.id}/migrate {body.model_dump_json()}", request_move)


@router.post("/sessions/{session}/done", status_code=202, responses=refusals(404, 409))
async def work_done(deps: Deps, who: SessionOwner, session: SessionParam, body: DoneIn) -> Done:
    """Report that the work is done and how it went. The session ends, or stops so that its disk is retained."""
    row = await session_named(deps, who, session)
    preserve = body.storage == "preserve"
    command = WorkDone(row.id, DeciderFacts(who.actor), succeeded=body.succeeded, preserve=preserve)
    return done(await service.done(deps.ctx, command), url=f"/api/v1/sessions/{row.id}")


@router.post("/sessions/{session}/grace", status_code=202, response_model=Done, responses=refusals(404, 409))
async def grace(deps: Deps, who: SessionOwner, session: SessionParam, body: GraceIn, key: Repeat) -> Any:
    """Choose what happens to the session's machine that stopped working and is kept: wait, replace or give_up."""
    row = await session_named(deps, who, session)

    async def choose(call: str) -> tuple[int, Done]:
        command = AnswerGrace(row.id, DeciderFacts(who.actor), body.choice, key=call)
        return 202, done(await grace_answers.answer(deps.ctx, command), url=f"/api/v1/sessions/{row.id}")

    return await once(deps, who, key, f"POST /sessions/{row.id}/grace {body.model_dump_json()}", choose)


@router.post("/sessions/{session}/stop", status_code=202, responses=refusals(404, 409))
async def stop(deps: Deps, who: SessionOwner, session: SessionParam) -> Done:
    """Stop the session's machine where that saves money; the disk stays, and the answer says what it costs."""
    return await _switch(deps, who, session, PowerAction.STOP)


@router.post("/sessions/{session}/start", status_code=202, response_model=Done, responses=refusals(404, 409))
async def start(deps: Deps, who: SessionOwner, session: SessionParam, key: Repeat) -> Any:
    """Start the session's stopped machine again, within what was approved."""
    return await _switch_once(deps, who, session, PowerAction.START, key)


@router.post("/sessions/{session}/restart", status_code=202, response_model=Done, responses=refusals(404, 409))
async def restart(deps: Deps, who: SessionOwner, session: SessionParam, key: Repeat) -> Any:
    """Restart the session's machine in place."""
    return await _switch_once(deps, who, session, PowerAction.RESTART, key)


@router.post("/sessions/{session}/token", status_code=201, responses=refusals(404, 409))
async def node_token(deps: Deps, who: SessionOwner, session: SessionParam) -> NodeTokenOut:
    """Create the token for the API of the session's machine. It is shown once and replaces the one before."""
    row = await session_named(deps, who, session)
    reply = await node_api.make_token(deps.ctx, row.id, who.actor)
    made = reply.data.get("opened")
    if not isinstance(made, node_api.Opened):
        raise ProblemRaised(reply)
    return NodeTokenOut(
        code=reply.code,
        sentence=reply.sentence,
        session_id=row.id,
        token=made.token,
        url=made.url,
        certificate_sha256=made.certificate,
    )


async def _switch_once(deps: Dependencies, who: Principal, session: str, order: PowerAction, key: str) -> JSONResponse:
    row = await session_named(deps, who, session)

    async def switch(command: str) -> tuple[int, Done]:
        return 202, await _switch(deps, who, row.id, order, command)

    return await once(deps, who, key, f"POST /sessions/{row.id}/{order}", switch)


async def _switch(deps: Dependencies, who: Principal, session: str, order: PowerAction, key: str = "") -> Done:
    row = await session_named(deps, who, session)
    reply = await power.switch(deps.ctx, Switch(row.id, DeciderFacts(who.actor), order, key=key))
    return done(reply, url=f"/api/v1/sessions/{row.id}")


async def session_in_sight(
    deps: Dependencies, who: Principal, session: str, least: Sight = Sight.ALL
) -> tuple[Session, Sight]:
    """Return the session that an id names, if the principal may see it, and how much of it they see."""
    _, row, sight = await found(deps, who, session, least)
    if row is None:
        raise ProblemRaised(NO_SESSION)
    return row, sight


async def session_named(deps: Dependencies, who: Principal, session: str, least: Sight = Sight.ALL) -> Session:
    """Return the session that an id names, if the principal sees at least this of it."""
    return (await session_in_sight(deps, who, session, least))[0]
