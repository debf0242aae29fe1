"""Ask for network volumes, and list them. Each is a session, which the routes of sessions extend and end."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from bot.api.dependencies import Deps, Requester, RequestReader, refusals
from bot.api.idempotency import Repeat, once
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import done
from bot.api.schemas.base import Done
from bot.api.schemas.volume_schemas import VolumeIn, VolumeOut
from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.stored import job_of
from bot.rules.values.reply_code import ReplyCode
from bot.services.billing.metering import cost_now
from bot.services.requests import submit
from bot.services.runtime.commands import Provision, refuse
from bot.services.sessions import volume_lookup as of_people
from ledger.kernel.volume_name import volume_of
from providers.cloud_names import machines_of

router = APIRouter(prefix="/api/v1", tags=["volumes"])


@router.get("/volumes", responses=refusals())
async def volumes(deps: Deps, who: RequestReader) -> list[VolumeOut]:
    """List your network volumes."""
    ctx, now = deps.ctx, deps.ctx.clock.now()
    return [
        VolumeOut(
            name=volume_of(view.session.gpu),
            session_id=view.session.id,
            request_id=view.session.request_id,
            state=view.session.state,
            owner=view.session.owner,
            owner_name=ctx.names.of(ctx.policy, view.session.owner) or "",
            cloud=machines_of(row.cloud),
            region=str(row.offer.get("region", "")),
            size_gb=job_of(view.request.job).disk_gb,
            path=of_people.path_of(ctx, view),
            price_usd_h=row.price_usd_h,
            cost_usd=cost_now(ctx, view, now),
            deadline=view.session.deadline,
            trouble=of_people.trouble(view),
        )
        for view in await of_people.mine(ctx, who.actor)
        if (row := view.instance) is not None
    ]


@router.post("/volumes", status_code=202, response_model=Done, responses=refusals(404, 409, 503))
async def create_volume(deps: Deps, who: Requester, body: VolumeIn, key: Repeat) -> Any:
    """Ask for a network volume. Nothing is created before an approver approves its cost until its end."""

    async def submit_request(command: str) -> tuple[int, Done]:
        more = [("for", body.time), ("cloud", body.cloud), ("region", ",".join(body.regions))]
        said = " ".join(f"{name}={value.replace(' ', '')}" for name, value in more if value)
        found = parse(f"volume create {_word(body.name)} {_word(body.size)} {said}", deps.ctx.policy)
        if isinstance(found, GrammarError) or found.job is None:
            sentence = found.message if isinstance(found, GrammarError) else "This is not a request for a volume."
            raise ProblemRaised(refuse(ReplyCode.BAD_VOLUME, sentence))
        job = of_people.because(found.job, body.reason)
        asks = Provision(command, who.actor, deps.settings.channel, job, by_agent=who.is_agent)
        reply = await submit.provision(deps.ctx, asks)
        return 202, done(reply, url=f"/api/v1/requests/{reply.data.get('request_id', '')}")

    return await once(deps, who, key, f"POST /volumes {body.model_dump_json()}", submit_request)


def _word(text: str) -> str:
    """Join a text into one word, so that it can't add an option of its own."""
    return text.strip().replace(" ", "_") or "-"
