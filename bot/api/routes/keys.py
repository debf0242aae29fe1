"""Manage the public SSH key that machines get, and the API keys of programs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from bot.api.dependencies import Admin, Deps, Requester, RequestReader, refusals
from bot.api.problems import ProblemRaised, answered
from bot.api.routes.requests import done
from bot.api.schemas.base import Done
from bot.api.schemas.keys import ApiKeyIn, ApiKeyMade, ApiKeyOut, SshKeyIn, SshKeyOut
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import api_keys as access_api_keys
from bot.services.access import ssh_keys
from bot.services.access.api_keys import NewKey
from bot.services.runtime.commands import AddKey, Reply

router = APIRouter(prefix="/api/v1", tags=["keys"])
Fingerprint = Annotated[
    str,
    Query(max_length=60, description="The key's fingerprint, or its beginning. Not needed where you have one key."),
]
KeyId = Annotated[str, Path(pattern=r"^[0-9a-z]{12}$", description="The id of the key.")]


@router.get("/ssh-keys", responses=refusals(404))
async def ssh_key(deps: Deps, who: RequestReader) -> SshKeyOut:
    """List the public SSH keys that your machines get."""
    return answered(SshKeyOut, await ssh_keys.show(deps.ctx, who.actor))


@router.put("/ssh-keys", responses=refusals())
async def put_ssh_key(deps: Deps, who: Requester, body: SshKeyIn) -> SshKeyOut:
    """Register a public SSH key, besides those that you have.

    New machines accept it, and soon the running ones that you may use.
    """
    return answered(SshKeyOut, await ssh_keys.add(deps.ctx, AddKey(who.actor, body.public_key)))


@router.delete("/ssh-keys", responses=refusals(404))
async def delete_ssh_key(deps: Deps, who: Requester, fingerprint: Fingerprint = "") -> SshKeyOut:
    """Delete a public SSH key of yours.

    It is soon removed from the running machines that you may use.
    """
    return answered(SshKeyOut, await ssh_keys.remove(deps.ctx, who.actor, fingerprint))


@router.get("/keys", responses=refusals())
async def api_keys(deps: Deps, _who: Admin) -> list[ApiKeyOut]:
    """List every API key, without its secret."""
    found = await access_api_keys.listing(deps.ctx.db, deps.ctx.clock.now())
    names, policy = deps.ctx.names, deps.ctx.policy
    return [
        ApiKeyOut.of(one, actor_name=names.of(policy, one.actor), owner_name=names.of(policy, one.owner))
        for one in found
    ]


@router.post("/keys", status_code=201, responses=refusals(409))
async def create_api_key(deps: Deps, who: Admin, body: ApiKeyIn) -> ApiKeyMade:
    """Create an API key for a program.

    Keys of people are made on the server, because they may carry the right to approve.
    """
    if who.key_id and ":" in body.name and not body.name.startswith(("consumer:", "agent:")):
        create = cli_command("keys create")
        sentence = f"Keys of people are created on the server, with {create}. Name a program or an agent."
        raise ProblemRaised(Reply(False, ReplyCode.ONLY_PROGRAMS, sentence))
    command = NewKey(body.name, body.owner, tuple(body.scopes), body.days)
    return answered(ApiKeyMade, await access_api_keys.issue(deps.ctx, command, who.actor))


@router.delete("/keys/{key_id}", responses=refusals(404))
async def revoke_api_key(deps: Deps, who: Admin, key_id: KeyId) -> Done:
    """Revoke an API key at once."""
    return done(await access_api_keys.revoke(deps.ctx.db, key_id, who.actor, deps.ctx.clock.now()))
