"""Serve the check-ins of the agents on rented machines; a node's token works here and nowhere else."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response, Security
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from bot.api.dependencies import NODE, refusals
from bot.api.problems import ProblemRaised
from bot.api.schemas.agent import CheckinIn, CheckinOut, CheckpointIn, SignedDeadline
from bot.http_shares import note_known
from bot.rules.nodes.checkins import Report
from bot.rules.nodes.machine_report import MachineReport, QueueCounts
from bot.rules.nodes.node_api import NodeApiReport
from bot.rules.nodes.queue_results import ReportedResult
from bot.services.nodes.checkins import Checkins
from bot.services.runtime.agent_archive import NOT_BUILT
from bot.services.runtime.commands import Reply

router = APIRouter(prefix="/agent/v1", tags=["agent"])
#: For the documentation only: the middleware reads the token before any route is looked for.
TOKEN = HTTPBearer(
    auto_error=False,
    description="The boot token of a node, gpun_…, or its check-in token, gpuc_…",
    bearerFormat="gpuc",
    scheme_name="NodeToken",
)


@router.post("/checkin", responses=refusals(401, 409))
async def checkin(request: Request, body: CheckinIn, _token: Annotated[Any, Security(TOKEN)] = None) -> CheckinOut:
    """Check in from a rented machine.

    The first one exchanges the boot token: it sends a nonce, and the answer has the token for all later ones.

    A check-in shows that the machine still exists; it extends nothing. The answer says what to do and when the session
    ends.
    """
    checkins: Checkins = request.app.state.checkins
    claim = NodeApiReport(body.api.certificate_sha256, body.api.url, body.api.port) if body.api else None
    taken = await checkins.take(request.scope["state"][NODE], _report(body), claim, body.nonce)
    if isinstance(taken, Reply):
        raise ProblemRaised(taken)
    note_known(request.scope)
    return CheckinOut.of(taken, deadline=SignedDeadline.of(taken))


async def archive(request: Request) -> Response:
    """Serve the program that rented machines run."""
    found = request.app.state.deps.ctx.agent
    if found is None:
        raise HTTPException(404, NOT_BUILT)
    return Response(found.content, media_type="application/zip", headers={"ETag": f'"{found.sha256}"'})


def _report(body: CheckinIn) -> Report:
    seen = body.checkpoint or CheckpointIn()
    return Report(
        seq=body.seq,
        utilisation=body.utilisation,
        work=body.job,
        job_exit_code=body.job_exit_code,
        job_attempt=body.job_attempt or 1,
        step=body.step,
        target_step=body.target_step,
        tokens_per_s=body.tokens_per_s,
        idle_since=body.idle_since,
        checkpoint_step=seen.step,
        checkpoint_at=seen.at,
        queue=QueueCounts(**body.queue.model_dump()) if body.queue else None,
        results=tuple(ReportedResult(**one.model_dump()) for one in body.results),
        machine=MachineReport.of(body.machine.model_dump()) if body.machine else None,
        wants_startup=body.wants_startup,
        wants_secrets=body.wants_secrets,
        signed_end=(body.signed_end.message, body.signed_end.signature) if body.signed_end else None,
    )
