"""Small translations that every adapter needs: numbers and times, offers that fit, bill lines, a new instance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from ledger.kernel.ports import HIGHEST, LOWEST
from providers.capabilities import BillingRule
from providers.contract import Charge, InstanceSpec, InstanceStatus, ObservedInstance, Offer
from providers.errors import UnexpectedResponse
from providers.gpus.constraint import GpuConstraint

#: No price, size or time of an API comes near it; larger numbers would overflow what is computed from them.
LARGEST = Decimal(10) ** 12

Read = TypeVar("Read")


def number(value: Any, largest: Decimal = LARGEST) -> Decimal | None:
    """A JSON number as a decimal; None for what is missing, absurdly large, not finite or not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        parsed = Decimal(str(value))
    except InvalidOperation:
        return None
    return parsed if parsed.is_finite() and abs(parsed) < largest else None


def part(row: Any, *path: str) -> dict[str, Any]:
    """The object at the end of this path into an answer; empty where there is none."""
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row if isinstance(row, dict) else {}


def listed(cloud: str, row: Any, name: str, problem: str) -> list[Any]:
    """The list of this name. `UnexpectedResponse` where there is none: that must never look like an empty one."""
    found = row.get(name) if isinstance(row, dict) else None
    if not isinstance(found, list):
        raise UnexpectedResponse(cloud, problem)
    return found


def is_port(value: Any) -> bool:
    """Whether an answer names a port from 1 to 65535: a number, or its digits."""
    digits = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return digits.isascii() and digits.isdigit() and len(digits) <= 5 and LOWEST <= int(digits) <= HIGHEST


def text(value: Any) -> str | None:
    """A JSON string; None for anything else."""
    return value if isinstance(value, str) else None


def instant(value: Any, zone: tzinfo | None = None) -> datetime | None:
    """A time in ISO 8601 as aware UTC; one without a zone is in `zone`. None for anything else."""
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=zone)
    return at.astimezone(UTC) if at.tzinfo is not None else None


def seconds(value: Any) -> float | None:
    """How long a header such as `Retry-After` asks to wait; None when it is no number of seconds."""
    try:
        parsed = float(value)
    except (TypeError, ValueError):
        return None
    return parsed if 0 <= parsed < float("inf") else None


def clean(said: str, secrets: Iterable[str]) -> str:
    """A cloud's text without any of `secrets`, printable and at most 200 characters long.

    A secret of less than six characters is left in: hiding every "1" would only garble the sentence.
    """
    for secret in sorted((s for s in secrets if len(s) >= 6), key=len, reverse=True):
        said = said.replace(secret, "[hidden]")
    return "".join(c if c.isprintable() else " " for c in said)[:200]


def fits(offer: Offer, constraint: GpuConstraint, disk_gb: int = 0) -> bool:
    """Whether an offer has the GPU, the count, the memory per GPU and the disk that were asked for."""
    low, high = constraint.memory_gb_min, constraint.memory_gb_max
    return (
        constraint.count_min <= offer.gpu_count <= constraint.count_max
        and (not constraint.names or offer.gpu in constraint.names)
        and (low is None or offer.memory_gb >= low)
        and (high is None or offer.memory_gb <= high)
        and (offer.disk_gb_max is None or offer.disk_gb_max >= disk_gb)
    )


def only(offer: Offer) -> GpuConstraint:
    """The narrowest constraint that this offer meets."""
    return GpuConstraint((offer.gpu,), offer.gpu_count, offer.gpu_count)


def same(found: Iterable[Offer], offer: Offer) -> Offer | None:
    """The offer with the same key among these; None when it is not there."""
    return next((fresh for fresh in found if fresh.key == offer.key), None)


async def joined(searches: Iterable[Awaitable[Read]]) -> list[Read]:
    """The answers of several concurrent searches.

    Every search is awaited before the first error is raised, so that no call is left running behind it.
    """
    answers = await asyncio.gather(*searches, return_exceptions=True)
    found: list[Read] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found


def pending(ref: str, spec: InstanceSpec) -> ObservedInstance:
    """A new instance of which the cloud gave only the id: the rest is what was requested."""
    offer = spec.offer
    return ObservedInstance(
        cloud=offer.cloud,
        ref=ref,
        name=spec.name,
        status=InstanceStatus.PENDING,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        region=offer.region,
        machine_id=offer.machine_id,
        spot=offer.spot,
    )


def ruled(lines: Iterable[Charge], billing: BillingRule) -> tuple[Charge, ...]:
    """Bill lines with the billing step and the minimum time of their cloud."""
    return tuple(replace(line, quantum_s=billing.quantum_s, minimum_s=billing.minimum_s) for line in lines)
