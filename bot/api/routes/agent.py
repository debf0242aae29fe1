"""Serve the check-ins of the agents on rented machines; a node's token works here and nowhere else."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response, Security
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from bot.api.dependencies import NODE, refusals
from bot.api.problems import ProblemRaised
from bot.api.schemas.agent import CheckinIn, CheckinOut
from bot.http_shares import note_known
from bot.services.nodes.checkins import Checkins
from bot.services.runtime.agent_archive import NOT_BUILT
from bot.services.runtime.commands import Reply
from bot.wire.codec import to_json

router = APIRouter(prefix="/agent/v1", tags=["agent"])
#: For the documentation only: the middleware reads the token before any route is looked for.
TOKEN = HTTPBearer(
    auto_error=False,
    description="The boot token of a node, gpun_…, or its check-in token, gpuc_…",
    bearerFormat="gpuc",
    scheme_name="NodeToken",
)


@router.post("/checkin", response_model=CheckinOut, responses=refusals(401, 409))
async def checkin(request: Request, body: CheckinIn, _token: Annotated[Any, Security(TOKEN)] = None) -> Response:
    """Check in from a rented machine.

    The first one exchanges the boot token: it sends a nonce, and the answer has the token for all later ones.

    A check-in shows that the machine still exists; it extends nothing. The answer says what to do and when the session
    ends.
    """
    checkins: Checkins = request.app.state.checkins
    taken = await checkins.take(request.scope["state"][NODE], body)
    if isinstance(taken, Reply):
        raise ProblemRaised(taken)
    note_known(request.scope)
    return JSONResponse(to_json(taken, is_whole=True))


async def archive(request: Request) -> Response:
    """Serve the program that rented machines run."""
    found = request.app.state.deps.ctx.agent
    if found is None:
        raise HTTPException(404, NOT_BUILT)
    return Response(found.content, media_type="application/zip", headers={"ETag": f'"{found.sha256}"'})
