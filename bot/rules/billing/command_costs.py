"""Share the bill of a machine among the commands that ran on its GPUs; what no command used is idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from ledger.kernel import money

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CommandTime:
    """Say when one command ran, on one GPU."""

    number: int
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class CommandCosts:
    """Hold the dollars of each command and of the idle rest: together exactly the bill."""

    by_number: Mapping[int, Decimal]
    idle_usd: Decimal


def command_costs(
    bill_usd: Decimal, billed: tuple[datetime, datetime] | None, gpus: int, commands: Sequence[CommandTime]
) -> CommandCosts:
    """Share a bill by time and GPUs: price of the machine × time of the command × its share of the GPUs.

    `billed` is when billing began and ended. Time outside of it costs nothing. Parts are rounded down to micro-dollars,
    and the rest goes to the largest remainders.
    """
    bill_micro = money.to_micro(bill_usd)
    if billed is None or not commands or gpus < 1:
        return CommandCosts({one.number: Decimal(0) for one in commands}, money.from_micro(bill_micro))
    begin, end = billed
    used = [max((min(one.ended_at, end) - max(one.started_at, begin)) // _MICROSECOND, 0) for one in commands]
    whole = max(((end - begin) // _MICROSECOND) * gpus, sum(used))
    parts = split(bill_micro, [*used, whole - sum(used)] if whole else [*used, 1])
    by_number = {one.number: money.from_micro(part) for one, part in zip(commands, parts, strict=False)}
    return CommandCosts(by_number, money.from_micro(parts[-1]))


def split(amount: int, weights: Sequence[int]) -> list[int]:
    """Split a whole amount by weights, whose sum is above 0, into whole parts that add up to it."""
    whole, size = sum(weights), abs(amount)
    parts = [size * one // whole for one in weights]
    order = sorted(range(len(weights)), key=lambda place: (-(size * weights[place] % whole), place))
    for place in order[: size - sum(parts)]:
        parts[place] += 1
    return parts if amount >= 0 else [-one for one in parts]
