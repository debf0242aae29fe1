"""Build what a create needs: its spec, its grant, and the judgement whether it may still be sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from bot.rules.instances import file_mounts
from bot.rules.instances.recovery_mode import HOLD
from bot.rules.instances.startup_script import bootstrap
from bot.rules.jobs.job import JobRequest
from bot.rules.market.filters import image_of, least_cuda
from bot.rules.policy.policy import Policy
from bot.rules.values.mounts import mounts_of
from bot.services.grants import reopen, reservations
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from bot.services.runtime.ledger_comparison import compare
from bot.wire.variables import AGENT_URL
from ledger.core import Claim, StaleMove, Tx, amend, lock_family, release
from ledger.kernel.actor import SYSTEM
from ledger.kernel.grant import Grant, GrantKind
from ledger.kernel.ports import Port
from ledger.kernel.states import GrantState, SessionState
from ledger.models import GrantRow, Instance, Session
from ledger.queries.runs.node_sets import is_whole
from providers.capabilities import PortAccess
from providers.contract import AttachedVolume, InstanceSpec, Offer, Provider
from providers.profiles import model

#: The variable that tells a job where its network volume is mounted.
VOLUME_PATH = "GPU_SHOPPER_VOLUME"


def order(
    instance: Instance,
    job: JobRequest,
    offer: Offer,
    keys: tuple[str, ...],
    policy: Policy,
    provider: Provider,
    env: Mapping[str, str],
    login_key: str = "",
    volume: AttachedVolume | None = None,
) -> InstanceSpec:
    """Build the spec of an instance from an offer that was just priced, with its cloud's variables and `env`.

    `login_key` is left out where it could only take the place of the account's own keys.
    """
    able, places = provider.capabilities, model.load(offer.cloud).overrides
    bid = (offer.gpu_usd_h or offer.price_usd_h) if offer.spot else None
    if able.batch or able.volume_gb is not None:
        # A batch cloud runs a program: the person's command is all of it, with the copy of its files in front. On a
        # volume nothing runs.
        onstart, login_key = file_mounts.before(mounts_of(job.mounts), job.run or ""), ""
    else:
        keeps_command = able.onstart_is_command and job.image is not None
        onstart = "" if keeps_command else bootstrap(places.environment, places.directories, agent=AGENT_URL in env)
        login_key = "" if keeps_command and not keys else login_key
    return InstanceSpec(
        instance.name,
        offer,
        image_of(job, policy, offer.cloud),
        job.disk_gb,
        keys,
        login_key,
        env={**places.environment, **env, **({VOLUME_PATH: volume.path} if volume is not None else {})},
        onstart=onstart,
        bid_usd_h=bid,
        min_cuda=least_cuda(job, policy, offer.cloud),
        in_set=instance.node_rank is not None,
        volume=volume,
        ports=tuple(map(Port.read, job.ports)) if able.ports is PortAccess.PUBLIC else (),
    )


def authority(row: GrantRow, label: str) -> Grant:
    """Return the committed grant in the form that an adapter takes."""
    return Grant(
        row.id,
        row.request_id,
        GrantKind(row.kind),
        label,
        row.price_cap_usd_h,
        row.total_cap_usd,
        Decimal(row.hours),
        row.until,
    )


async def may_send(ctx: Context, tx: Tx, held: Claim, grant_id: str, session_id: str, now: datetime) -> bool:
    """Whether the create may be sent in this transaction; if not, carry out what follows from that.

    Raises `StaleMove` when the session's end was ordered meanwhile.
    """
    await lock_family(tx, GrantRow, grant_id)
    grant = await tx.get_one(GrantRow, grant_id)
    if grant.state is not GrantState.OPEN or now >= grant.until:
        await reservations.withdraw_ready(tx, session_id, "Its approval expired.", now, SYSTEM)
        if grant.state is GrantState.OPEN:
            await reopen.reopen_request(tx, grant.request_id, "The approval expired before it was used.", now)
            ctx.hints.requests.set()
        return False
    # Recovery mode, or a doubt about the clock, may have begun during this pass; nothing is bought in either. The
    # database may have gone back a moment ago, and the end watchdog begins recovery mode in its next turn.
    if clock_problem(ctx.clock) or (await compare(tx, ctx.epoch.entries())).stops_launches:
        await release(tx, Instance, held, due_at=now + HOLD)
        return False
    session = await tx.get_one(Session, session_id, populate_existing=True)
    if session.state is SessionState.TERMINATING:
        raise StaleMove(session.id, str(session.state), str(SessionState.PROVISIONING))
    if not await is_whole(tx, session):
        return False  # Another machine of its set has failed; `node_sets` ends the set.
    if grant.kind == GrantKind.REPLACE and session.deadline is not None and now >= session.deadline:
        # A replacement has the end of the instance it replaces; the expiration of the session enforces it.
        await reservations.withdraw_ready(tx, session_id, "Its approved time ended.", now, SYSTEM)
        await amend(tx, Session, session_id, due_at=now)
        ctx.hints.sessions.set()
        return False
    return True
