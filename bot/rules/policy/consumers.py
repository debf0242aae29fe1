"""Limit what one program may do: on which clouds and GPUs, for how long, and what is auto-approved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from ledger.kernel.actor import Actor
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


def of(consumers: Mapping[str, ConsumerPolicy], actor: Actor) -> ConsumerPolicy | None:
    """Return the limits of a program; None for people, and for programs that the policy does not name."""
    return consumers.get(actor.id) if actor.is_program else None


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
