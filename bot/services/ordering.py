"""What a create is made of: the order that is sent to a cloud, and the authority under which it is sent."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.policy import Policy
from ledger.models import GrantRow, Instance
from ledger.values import Grant, GrantKind, JobRequest
from providers.base import InstanceSpec, Offer, Provider


def order(
    instance: Instance, job: JobRequest, offer: Offer, keys: tuple[str, ...], policy: Policy, provider: Provider
) -> InstanceSpec:
    """The instance to make of an offer that was just priced."""
    image = job.image or policy.image(offer.cloud)
    bid = (offer.gpu_usd_h or offer.price_usd_h) if offer.spot else None
    # Where a create hands over a program, the person's command is the whole of it.
    program = (job.run or "") if provider.capabilities.batch else ""
    return InstanceSpec(instance.name, offer, image, job.disk_gb, keys, onstart=program, bid_usd_h=bid)


def authority(row: GrantRow, label: str) -> Grant:
    """The committed grant, as an adapter takes it."""
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
