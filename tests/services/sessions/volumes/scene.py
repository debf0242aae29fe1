"""Walk volumes of a world whose clouds rent them out, for the tests beside this file."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from bot.rules.jobs import network_volume
from bot.services.requests import submit
from bot.services.runtime.commands import Provision, Reply
from ledger.kernel.actor import Actor
from ledger.kernel.states import SessionState
from ledger.models import Instance, Session
from tests.support.world import ALICE, CHANNEL, World

RUNPOD, LAMBDA = "runpod-volumes", "lambda-volumes"


async def ask(w: World, name: str = "data", size_gb: int = 200, actor: Actor = ALICE, **changes: Any) -> Reply:
    """Ask for a volume at RunPod for two days, or whatever `changes` say."""
    w.asked += 1
    terms = {"hours": Decimal(48), "clouds": ("runpod",), **changes}
    job = network_volume.volume_job(name, size_gb, **terms)
    return await submit.provision(w.ctx, Provision(f"volume-{w.asked}", actor, CHANNEL, job))


async def approved(w: World, name: str = "data", **changes: Any) -> str:
    """A volume that was just approved; its create is not sent yet. Returns the request's id."""
    reply = await ask(w, name, **changes)
    assert reply.ok, reply
    request_id = str(reply.data["request_id"])
    await w.settle()
    decided = await w.decide(request_id)
    assert decided.code == "approved", decided
    return request_id


async def ready(w: World, name: str = "data", **changes: Any) -> str:
    """A volume that is there. Returns the request's id."""
    request_id = await approved(w, name, **changes)
    await w.settle()
    await w.run(60, 20)
    assert (await session(w)).state is SessionState.RUNNING
    return request_id


async def session(w: World) -> Session:
    """The newest session."""
    return (await w.books()).sessions[-1]


async def row(w: World) -> Instance:
    """The newest instance row."""
    return (await w.books()).instances[-1]


def there(w: World) -> list[str]:
    """The clouds' own ids of the volumes that there are."""
    return [str(one.ref) for one in w.instances() if one.alive and one.cloud.endswith("-volumes")]
