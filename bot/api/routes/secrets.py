"""Store, list and delete the caller's secrets for jobs. No route answers with a value."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from bot.api.dependencies import Deps, Requester, RequestReader, refusals
from bot.api.problems import ProblemRaised, answered
from bot.api.schemas.secrets import SecretDone, SecretIn, SecretOut
from bot.services.access import job_secrets
from bot.services.access.job_secrets import StoreSecret

router = APIRouter(prefix="/api/v1", tags=["secrets"])
Name = Annotated[
    str,
    Path(max_length=100, description="1 to 64 capital letters, digits and underscores.", examples=["HF_TOKEN"]),
]


@router.get("/secrets", responses=refusals())
async def secrets(deps: Deps, who: RequestReader) -> list[SecretOut]:
    """List the names of your secrets, with their dates."""
    reply = await job_secrets.show(deps.ctx, who.actor)
    return [SecretOut(**one) for one in reply.data["secrets"]]


@router.get("/secrets/{name}", responses=refusals(404))
async def secret(deps: Deps, who: RequestReader, name: Name) -> SecretOut:
    """Show the dates of one secret of yours."""
    reply = await job_secrets.show_one(deps.ctx, who.actor, name)
    if not reply.ok:
        raise ProblemRaised(reply)
    return SecretOut(**reply.data)


@router.put("/secrets/{name}", responses=refusals())
async def put_secret(deps: Deps, who: Requester, name: Name, body: SecretIn) -> SecretDone:
    """Store a secret of yours, or replace its value. Jobs that name it get it as a variable."""
    command = StoreSecret(who.actor, name, body.value.get_secret_value())
    return answered(SecretDone, await job_secrets.store(deps.ctx, command))


@router.delete("/secrets/{name}", responses=refusals(404))
async def delete_secret(deps: Deps, who: Requester, name: Name) -> SecretDone:
    """Delete a secret of yours. No machine gets it from now on."""
    return answered(SecretDone, await job_secrets.delete(deps.ctx, who.actor, name))
