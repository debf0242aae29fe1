"""Build what a create needs: the spec that is sent to a cloud, and the grant under which it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from bot.rules.instances import file_mounts
from bot.rules.instances.startup_script import bootstrap
from bot.rules.market.filters import image_of, least_cuda
from bot.rules.policy.policy import Policy
from bot.rules.values.mounts import mounts_of
from bot.services.nodes.enrollment import AGENT_URL
from ledger.kernel.grant import Grant, GrantKind
from ledger.kernel.job import JobRequest
from ledger.kernel.ports import Port
from ledger.models import GrantRow, Instance
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
