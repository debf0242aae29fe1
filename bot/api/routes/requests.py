"""Submit, show, approve, reject and cancel requests; a program's request needs an approver like everybody's."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from bot.api.dependencies import Decider, Dependencies, Deps, Requester, RequestReader, refusals
from bot.api.idempotency import Act, MayRepeat, Repeat, once
from bot.api.problems import ProblemRaised
from bot.api.routes.market import refused
from bot.api.schemas.base import Done, Page, ReasonIn
from bot.api.schemas.requests import AgainIn, ApproveIn, RequestOut, RequestSummary, ShareIn
from bot.api.views import request_out, request_summary
from bot.rules.access.scopes import BadHolder, Scope, known_person
from bot.rules.access.sight import Sight
from bot.rules.approvals.decision import DeciderFacts, Decision
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.facet import plain
from bot.rules.jobs.words import hours_of
from bot.rules.policy.consumers import of as limits_of
from bot.rules.values.bad_word import BadWord
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization, sharing, ssh_keys
from bot.services.access.api_keys import Principal
from bot.services.access.authorization import Found
from bot.services.approvals import advance, by_offer, decisions
from bot.services.approvals.advance import Revoke
from bot.services.grants import approvers
from bot.services.plans.job_file import BadJob, completed, read_job
from bot.services.requests import again as repeat
from bot.services.requests import submit
from bot.services.runtime import liveness
from bot.services.runtime.commands import Cancel, Provision, Reply
from ledger.kernel.actor import Actor, ActorKind
from ledger.models import Request
from ledger.queries.lookups import session_states
from ledger.queries.views import request_view, requests_page

router = APIRouter(prefix="/api/v1", tags=["requests"])
#: An id, or a unique ending of one, as every interface takes it. An instance, also as `cloud:id`, names its session.
ID = r"^([A-Za-z0-9_]{4,64}|[a-z0-9]{2,32}:[A-Za-z0-9_.-]{1,64})$"
RequestParam = Annotated[
    str, Path(pattern=ID, examples=["req_01k9x7m2q4d8s3f5"], description="A request by its id, or by the end of one.")
]
Cursor = Annotated[str | None, Query(pattern=r"^[a-z]{3}_[0-9a-z]{16}$", description="next_cursor of the last page.")]
Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]


async def found(deps: Dependencies, who: Principal, text: str, least: Sight = Sight.ALL) -> Found:
    """Find the request and the session that an id names, if the principal may see them.

    Every route with an id checks access here. `least` is what a caller shows of it, or needs to see for what it does.
    """
    facts = await authorization.looked_up(deps.ctx, who)
    try:
        async with deps.ctx.db.read() as tx:
            return await authorization.find(tx, deps.ctx.policy, who, text, deps.ctx.clock.now(), facts, least)
    except LookupError as error:
        raise ProblemRaised(authorization.refusal(error)) from error


def done(reply: Reply, **more: Any) -> Done:
    """Return the answer of a command that was carried out; raises `ProblemRaised` for one that was not."""
    if not reply.ok:
        raise ProblemRaised(reply)
    said = {name: value for name, value in reply.data.items() if name in ("request_id", "session_id")}
    return Done(code=reply.code, sentence=reply.sentence, **{**said, **more})


@router.post("/sessions", status_code=202, response_model=Done, responses=refusals(409, 503))
async def provision(deps: Deps, who: Requester, document: JobDocument, key: Repeat) -> Any:
    """Request GPUs. The answer names the request, which waits for offers and then for an approver.

    More hours than the policy's limit also need a 12-hour override. An approval of the request approves that, too.
    """

    async def submit_request(command: str) -> tuple[int, Done]:
        actor = await _for_whom(deps, who, document.consumer)
        try:
            limits = limits_of(deps.ctx.policy.consumers, actor)
            job = read_job(completed(document, limits.defaults) if limits else document, deps.ctx.policy)
        except BadJob as error:
            raise refused(error) from error
        sender = None if actor == who.actor else who.actor
        asks = Provision(command, actor, deps.settings.channel, job, by_agent=who.is_agent, sent_by=sender)
        reply = await submit.provision(deps.ctx, asks)
        request_id = str(reply.data.get("request_id", ""))
        if reply.ok and request_id:
            async with deps.ctx.db.read() as tx:
                request = await tx.get_one(Request, request_id)
                hint = await ssh_keys.keyless(tx, deps.ctx.policy, request, "You have")
            reply = replace(reply, sentence=f"{reply.sentence} {hint}".strip())
        if reply.ok and not deps.settings.acts and (idle := await liveness.nobody_acts(deps.ctx, request_id)):
            reply = replace(reply, sentence=f"{reply.sentence} {idle}")
        return 202, done(reply, url=f"/api/v1/requests/{request_id}")

    return await once(deps, who, key, f"POST /sessions {document.model_dump_json()}", submit_request)


async def _for_whom(deps: Dependencies, who: Principal, consumer: str | None) -> Actor:
    """Return whose request it becomes: your own, or a program's that you answer for; raises `ProblemRaised` else."""
    if consumer is None or (who.actor.is_program and consumer == who.actor.id):
        return who.actor
    async with deps.ctx.db.read() as tx:
        names = await authorization.mine(tx, deps.ctx.policy, who.actor)
    if f"{ActorKind.CONSUMER}:{consumer}" not in names:
        sentence = (
            f"You don't own {consumer}; its own key, or the person behind it, requests for it. "
            f"For a new program, an operator runs `gpu-shopper keys create {consumer}`."
        )
        raise ProblemRaised(Reply(False, ReplyCode.NOT_YOURS, sentence))
    return Actor(ActorKind.CONSUMER, consumer)


@router.get("/requests", responses=refusals())
async def requests(
    deps: Deps,
    who: RequestReader,
    waiting: Annotated[bool, Query(description="true: only undecided requests.")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[RequestSummary]:
    """List the requests that this key may see, the newest first; with `waiting` only the undecided ones."""
    facts = await authorization.looked_up(deps.ctx, who)
    async with deps.ctx.db.read() as tx:
        names = await authorization.visible(tx, deps.ctx.policy, who, deps.ctx.clock.now(), facts)
        rows = await requests_page(tx, whose=names, waiting=waiting, before=cursor, limit=limit + 1)
        states = await session_states(tx, [row.id for row in rows])
    items = [request_summary(deps.ctx, row, states.get(row.id)) for row in rows[:limit]]
    return Page[RequestSummary](items=items, next_cursor=items[-1].id if len(rows) > limit else None)


@router.get("/requests/{request}", responses=refusals(404))
async def request(deps: Deps, who: RequestReader, request: RequestParam) -> RequestOut:
    """Show one request: its options, who must approve it and since when, or its result."""
    row, _, sight = await found(deps, who, request, Sight.FACTS)
    async with deps.ctx.db.read() as tx:
        group = await approvers.approver_group(tx, deps.ctx.policy, row, deps.ctx.clock.now())
        name = deps.ctx.names.of(deps.ctx.policy, row.requester) or "The requester"
        view = await request_view(tx, row.id)
        hint = await ssh_keys.keyless(tx, deps.ctx.policy, row, f"{name} has")
        return request_out(deps.ctx, view, group, sight, hint)


@router.post("/requests/{request}/approve", response_model=Done, responses=refusals(404, 409, 503))
async def approve(deps: Deps, who: Decider, request: RequestParam, body: ApproveIn, key: Repeat) -> Any:
    """Approve one option as the person whose key this is, under the same rules as in Slack."""
    row, *_ = await found(deps, who, request)
    decision = by_offer.Named(
        row.id,
        Decision.APPROVE,
        DeciderFacts(who.actor),
        offer_id=body.offer_id,
        version=body.quote_version,
        typed_amount=body.amount,
        cap_usd=Decimal(body.cap_usd) if body.cap_usd else None,
        reason=body.reason,
        hours=time_of(deps, body.hours),
        seen=body.digest,
    )

    # The quote that the approver read is not compared: a repeated call reads first, and sees what the first call did.
    said = body.model_dump_json(exclude={"digest", "quote_version"})
    return await once(deps, who, key, f"POST /requests/{row.id}/approve {said}", _decide(deps, decision))


def _decide(deps: Dependencies, decision: by_offer.Named) -> Act:
    async def decide(name: str) -> tuple[int, Done]:
        reply = await by_offer.decide(deps.ctx, replace(decision, key=name))
        return 200, done(reply, url=f"/api/v1/requests/{decision.request_id}")

    return decide


def time_of(deps: Dependencies, said: Decimal | str | None) -> Decimal | None:
    """Parse hours as in every interface; raises `ProblemRaised` for what is no time."""
    try:
        return None if said is None else hours_of(plain(said), deps.ctx.policy)
    except BadWord as error:
        raise ProblemRaised(Reply(False, ReplyCode.BAD_WORD, str(error))) from error


@router.post("/requests/{request}/reject", response_model=Done, responses=refusals(404, 409, 503))
async def reject(deps: Deps, who: Decider, request: RequestParam, body: ReasonIn, key: MayRepeat = None) -> Any:
    """Reject a request as the person whose key this is; the requester reads the reason."""
    row, *_ = await found(deps, who, request)
    decision = by_offer.Named(row.id, Decision.REJECT, DeciderFacts(who.actor), reason=body.reason)
    if key is None:
        return (await _decide(deps, decision)(""))[1]
    said = f"POST /requests/{row.id}/reject {body.model_dump_json()}"
    return await once(deps, who, key, said, _decide(deps, decision))


@router.post("/requests/{request}/cancel", responses=refusals(404, 409))
async def cancel(deps: Deps, who: Requester, request: RequestParam, body: ReasonIn) -> Done:
    """Withdraw an undecided request; somebody else's also needs the scope `approvals:write`."""
    row, *_ = await found(deps, who, request)
    async with deps.ctx.db.read() as tx:
        if not await authorization.may_cancel(tx, deps.ctx.policy, who, row):
            sentence = f"The request is not yours, and this key lacks the scope {Scope.APPROVALS_WRITE}."
            raise ProblemRaised(Reply(False, ReplyCode.NOT_YOURS, sentence))
    reply = await decisions.cancel(deps.ctx, Cancel(row.id, DeciderFacts(who.actor), body.reason))
    return done(reply, url=f"/api/v1/requests/{row.id}")


@router.post("/requests/{request}/revoke", responses=refusals(404, 409))
async def revoke(deps: Deps, who: Decider, request: RequestParam) -> Done:
    """Revoke your own approval in advance of a request that waits, as long as it was not used."""
    row, *_ = await found(deps, who, request)
    reply = await advance.revoke(deps.ctx, Revoke(row.id, DeciderFacts(who.actor)))
    return done(reply, url=f"/api/v1/requests/{row.id}")


@router.post("/requests/again", status_code=202, response_model=Done, responses=refusals(404, 409, 503))
async def again(deps: Deps, who: Requester, body: AgainIn, key: Repeat) -> Any:
    """Repeat an earlier request, your newest or one that you may see, as a new request of yours."""
    earlier = (await found(deps, who, body.request)).request if body.request else None

    async def submit_again(command: str) -> tuple[int, Done]:
        wanted = repeat.Again(command, who.actor, deps.settings.channel, earlier, who.is_agent)
        reply = await repeat.again(deps.ctx, wanted)
        return 202, done(reply, url=f"/api/v1/requests/{reply.data.get('request_id', '')}")

    return await once(deps, who, key, f"POST /requests/again {body.model_dump_json()}", submit_again)


@router.post("/requests/{request}/share", responses=refusals(404, 409))
async def share(deps: Deps, who: Requester, request: RequestParam, body: ShareIn) -> Done:
    """Share the machine of a request with one person more, or one less, before or after its launch."""
    row, *_ = await found(deps, who, request)
    try:
        person = known_person(body.person, deps.ctx.policy.same_person)
    except BadHolder as error:
        sentence = "Name a person: a Slack id such as U012AB3CD, or operator:ada."
        raise ProblemRaised(Reply(False, ReplyCode.BAD_SHARE, sentence)) from error
    admin = Scope.ADMIN in who.scopes and not who.actor.is_program
    reply = await sharing.change(deps.ctx, sharing.ShareWith(row.id, who.actor, person, off=body.off, admin=admin))
    return done(reply, url=f"/api/v1/requests/{row.id}")
