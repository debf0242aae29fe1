"""Limit what one program may do: on which clouds and GPUs, for how long, and what is auto-approved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal

from bot.rules.jobs.job import JobRequest
from bot.rules.values.phrases import hours
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor
from providers.cloud_names import machines_of
from providers.gpus.table import lookup


@dataclass(frozen=True, slots=True)
class ConsumerPolicy:
    """Hold one program's limits; what is empty limits nothing. `defaults` are fields of the portable job request.

    Requests whose worst case is below `auto_approve_below_usd` are approved by policy, up to `auto_approve_daily_usd`
    in 24 hours and until a day, as the person who signed for it allows. Without it every spend is decided by a person.
    """

    clouds: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    max_hours: Decimal | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    auto_approve_below_usd: Decimal | None = None
    auto_approve_daily_usd: Decimal = Decimal(25)
    auto_approve_until: date | None = None
    auto_approve_signed_by: str = ""


class NotAllowed(ValueError):
    """Refuse what a program's policy does not allow; `code` is stable, the message is for people."""

    def __init__(self, code: ReplyCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def of(consumers: Mapping[str, ConsumerPolicy], actor: Actor) -> ConsumerPolicy | None:
    """Return the limits of a program; None for people, and for programs that the policy does not name."""
    return consumers.get(actor.id) if actor.is_program else None


def cloud_of(job: JobRequest) -> str:
    """Return the cloud of the one offer that is asked for by its id; empty where none is."""
    return (job.offer_id or "").partition(":")[0]


def narrowed(job: JobRequest, limits: ConsumerPolicy, name: str) -> JobRequest:
    """Narrow the job to the limits: what was left open becomes what they allow. Raises `NotAllowed` beyond them."""
    if limits.clouds:
        at = cloud_of(job)
        if at and at not in limits.clouds:
            raise NotAllowed(
                ReplyCode.CLOUD_NOT_ALLOWED, f"{name} may rent at {', '.join(limits.clouds)} only, and not at {at}."
            )
        allowed = tuple(one for one in job.candidates or limits.clouds if machines_of(one) in limits.clouds)
        if not allowed:
            raise NotAllowed(ReplyCode.CLOUD_NOT_ALLOWED, f"{name} may rent at {', '.join(limits.clouds)} only.")
        job = replace(job, candidates=allowed)
    if job.makes_volume:
        return job  # The GPUs and the hours are limits of machines.
    if limits.gpus:
        known = tuple(name for gpu in limits.gpus for name in lookup(gpu))
        outside = [gpu for gpu in job.gpu.names if gpu not in known]
        if outside:
            raise NotAllowed(
                ReplyCode.GPU_NOT_ALLOWED, f"{name} may rent {', '.join(known)} only, and not {outside[0]}."
            )
        job = replace(job, gpu=replace(job.gpu, names=job.gpu.names or known))
    if limits.max_hours is not None and job.hours > limits.max_hours:
        most, asked = hours(limits.max_hours), hours(job.hours)
        raise NotAllowed(ReplyCode.TOO_LONG, f"{name} may rent for {most} at most, and asked for {asked}.")
    return job


def problems(consumers: Mapping[str, ConsumerPolicy]) -> Iterator[str]:
    """Say what is wrong with the programs of a policy: one sentence each."""
    for name, limits in consumers.items():
        for gpu in limits.gpus:
            if not lookup(gpu):
                yield f"consumers: {name}: {gpu!r} is not a GPU, for example RTX4090"
        if limits.max_hours is not None and limits.max_hours <= 0:
            yield f"consumers: {name}: max_hours must be above 0"
        if limits.auto_approve_below_usd is not None and not (
            limits.auto_approve_signed_by.strip() and limits.auto_approve_until
        ):
            yield f"consumers: {name}: auto_approve_below_usd needs auto_approve_signed_by and auto_approve_until"
