"""The nodes' own door: check-ins of the agents on rented machines. A token opens this and nothing else."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Request, Security
from fastapi.security import HTTPBearer
from pydantic import AwareDatetime, Field

from bot.api.desk import NODE, refusals
from bot.api.problems import Refused
from bot.api.schemas import In, Out
from bot.rules.nodes.checkins import Report, Work
from bot.rules.nodes.node_api import MOST_PORT, Claim
from bot.services.nodes.checkins import Answer, Checkins
from bot.services.runtime.commands import Reply

router = APIRouter(prefix="/agent/v1", tags=["agent"])
#: For the documentation only: the gate has read the token before any route is looked for.
TOKEN = HTTPBearer(
    auto_error=False, description="The token of a node: gpun_…", bearerFormat="gpun", scheme_name="NodeToken"
)
#: The largest integer that every JSON reader keeps.
MOST = 2**53 - 1
Count = Annotated[int, Field(ge=0, le=MOST)]
Percent = Annotated[Decimal, Field(ge=0, le=100, decimal_places=6, max_digits=12)]


class CheckpointIn(In):
    """The newest checkpoint that the node knows to be uploaded."""

    step: Count | None = None
    at: AwareDatetime | None = None


class NodeApiIn(In):
    """The API that this machine serves itself: its port, or its url at the address that its cloud shows."""

    certificate_sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    port: Annotated[int, Field(ge=1, le=MOST_PORT)] | None = None
    url: Annotated[str, Field(max_length=300)] | None = Field(default=None, examples=["https://203.0.113.7:8443"])


class CheckinIn(In):
    """One check-in. `seq` must be above the one before: milliseconds since 1970 do, also after a restart."""

    seq: Annotated[int, Field(ge=1, le=MOST)]
    utilisation: Annotated[tuple[Percent, ...], Field(max_length=64)] = ()
    job: Work = Work.RUNNING
    step: Count | None = None
    target_step: Count | None = None
    tokens_per_s: Annotated[Decimal, Field(ge=0, le=10**12, decimal_places=6, max_digits=18)] | None = None
    idle_since: AwareDatetime | None = None
    checkpoint: CheckpointIn | None = None
    api: NodeApiIn | None = None


class SignedDeadline(Out):
    """`message` is JSON: the approved end (`deadline_s`, seconds since 1970 or null), `instance`, and the check-in `n`.

    Where somebody has a token for the machine's own API, `api_token_sha256` is its hash: no other token opens it.
    A node believes it only with a right ed25519 `signature` (base64) and an `n` above those before.
    """

    message: str
    signature: str


class CheckinOut(Out):
    """The answer: what to do (save, upload, pause, stop), and when this session ends as things stand."""

    seq: int
    ends_at: datetime | None
    deadline: SignedDeadline
    asks: list[str]
    next_in_s: int
    api_problem: str = Field(default="", description="Why its word about its own API was not taken.")


@router.post("/checkin", responses=refusals(401, 409))
async def checkin(request: Request, body: CheckinIn, _token: Annotated[Any, Security(TOKEN)] = None) -> CheckinOut:
    """Report from a machine. It speaks against *absent*, and it extends nothing."""
    checkins: Checkins = request.app.state.checkins
    taken = await checkins.take(request.scope["state"][NODE], _report(body), _claim(body.api))
    if isinstance(taken, Reply):
        raise Refused(taken)
    return _out(taken)


def _claim(said: NodeApiIn | None) -> Claim | None:
    return Claim(said.certificate_sha256, said.url, said.port) if said else None


def _report(body: CheckinIn) -> Report:
    seen = body.checkpoint or CheckpointIn()
    return Report(
        seq=body.seq,
        utilisation=body.utilisation,
        work=body.job,
        step=body.step,
        target_step=body.target_step,
        tokens_per_s=body.tokens_per_s,
        idle_since=body.idle_since,
        checkpoint_step=seen.step,
        checkpoint_at=seen.at,
    )


def _out(taken: Answer) -> CheckinOut:
    return CheckinOut(
        seq=taken.seq,
        ends_at=taken.ends_at,
        deadline=SignedDeadline(message=taken.message, signature=taken.signature),
        asks=list(taken.asks),
        next_in_s=taken.next_in_s,
        api_problem=taken.api_problem,
    )
