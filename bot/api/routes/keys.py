"""Keys: the public SSH key that machines get, and the API keys of programs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from bot.api.dependencies import AtDesk, caller, refusals
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import done
from bot.api.schemas.base import Done
from bot.api.schemas.keys import ApiKeyIn, ApiKeyMade, ApiKeyOut, SshKeyIn, SshKeyOut
from bot.rules.access.scopes import Scope
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import api_keys as access_api_keys
from bot.services.access import ssh_keys
from bot.services.access.api_keys import NewKey, Principal
from bot.services.runtime.commands import AddKey, Reply

router = APIRouter(prefix="/api/v1", tags=["keys"])
Asker = Annotated[Principal, caller(Scope.REQUESTS_WRITE)]
Reader = Annotated[Principal, caller(Scope.REQUESTS_READ)]
Admin = Annotated[Principal, caller(Scope.ADMIN)]
KeyId = Annotated[str, Path(pattern=r"^[0-9a-z]{12}$", description="The id of the key.")]


def _ssh(reply: Reply) -> SshKeyOut:
    if not reply.ok:
        raise ProblemRaised(reply)
    return SshKeyOut(code=reply.code, sentence=reply.sentence, fingerprint=reply.data.get("fingerprint"))


@router.get("/ssh-keys", responses=refusals(404))
async def ssh_key(desk: AtDesk, who: Reader) -> SshKeyOut:
    """The public SSH key that machines of this key's holder get."""
    return _ssh(await ssh_keys.show(desk.ctx, who.actor))


@router.put("/ssh-keys", responses=refusals())
async def put_ssh_key(desk: AtDesk, who: Asker, body: SshKeyIn) -> SshKeyOut:
    """Register or replace it; machines that are created from now on accept it."""
    return _ssh(await ssh_keys.add(desk.ctx, AddKey(who.actor, body.public_key)))


@router.delete("/ssh-keys", responses=refusals(404))
async def delete_ssh_key(desk: AtDesk, who: Asker) -> SshKeyOut:
    """Forget it; machines that have it keep it."""
    return _ssh(await ssh_keys.remove(desk.ctx, who.actor))


@router.get("/keys", responses=refusals())
async def api_keys(desk: AtDesk, _who: Admin) -> list[ApiKeyOut]:
    """Every API key, without its secret."""
    found = await access_api_keys.listing(desk.ctx.db, desk.ctx.clock.now())
    return [ApiKeyOut.model_validate(one) for one in found]


@router.post("/keys", status_code=201, responses=refusals(409))
async def create_api_key(desk: AtDesk, who: Admin, body: ApiKeyIn) -> ApiKeyMade:
    """Make a key for a program. Keys of people are made on the server: they may carry the right to decide."""
    if who.key_id and ":" in body.name and not body.name.startswith("consumer:"):
        sentence = "Keys of people are made on the server, with gpu-shopper keys create; here, name a program."
        raise ProblemRaised(Reply(False, ReplyCode.ONLY_PROGRAMS, sentence))
    ctx = desk.ctx
    command = NewKey(body.name, body.owner, tuple(body.scopes), body.days)
    reply = await access_api_keys.create(ctx.db, ctx.labels, command, who.actor, ctx.clock.now())
    if not reply.ok:
        raise ProblemRaised(reply)
    return ApiKeyMade(
        code=reply.code,
        sentence=reply.sentence,
        key_id=reply.data["key_id"],
        actor=reply.data["actor"],
        token=reply.data["token"],
        expires_at=reply.data["expires_at"],
    )


@router.delete("/keys/{key_id}", responses=refusals(404))
async def revoke_api_key(desk: AtDesk, who: Admin, key_id: KeyId) -> Done:
    """End a key at once."""
    return done(await access_api_keys.revoke(desk.ctx.db, key_id, who.actor, desk.ctx.clock.now()))
