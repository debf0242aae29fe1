"""Judge a host price change by the age of the instance: end it, ask approvers, stop it meanwhile, or let it run on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from bot.rules.pricing.spend_limits import billed_rate
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import rates, usd


class PriceStep(StrEnum):
    """Name what follows from the rate that a cloud bills: the rate alone never ends an instance that was ready."""

    WITHIN = "within"
    END = "end"
    ASK = "ask"
    STOP = "stop"
    RUN_ON = "run_on"


@dataclass(frozen=True, slots=True)
class HostPrice:
    """Hold dollars per hour that a cloud bills for an instance, that are approved, and that a pending question covers.

    `asked_usd_h` is None without a pending question. `may_stop`: a stop saves money and its disk survives; `is_saved`:
    its newest checkpoint is verified.
    """

    billed_usd_h: Decimal | None
    approved_usd_h: Decimal
    was_ready: bool
    asked_usd_h: Decimal | None = None
    may_stop: bool = False
    is_saved: bool = False


def next_step(price: HostPrice) -> PriceStep:
    """Return what to do now. An answer, the approved total and the approved end are carried out elsewhere."""
    if billed_rate(price.billed_usd_h, price.approved_usd_h).allowed:
        return PriceStep.WITHIN
    if not price.was_ready:
        return PriceStep.END
    if price.asked_usd_h is None or not billed_rate(price.billed_usd_h, price.asked_usd_h).allowed:
        return PriceStep.ASK
    return PriceStep.STOP if price.may_stop and price.is_saved else PriceStep.RUN_ON


def set_aside_usd(hold_usd: Decimal, billed_usd_h: Decimal, price_cap_usd_h: Decimal) -> Decimal:
    """Return the dollars that buy the reserved checkpoint hold at the billed rate: more than reserved above the cap."""
    if billed_usd_h <= price_cap_usd_h or price_cap_usd_h <= 0:
        return hold_usd
    return hold_usd * billed_usd_h / price_cap_usd_h


def question(
    cloud: str,
    billed_usd_h: Decimal,
    approved_usd_h: Decimal,
    cap_usd: Decimal,
    end: datetime,
    *,
    short: str,
    may_stop: bool,
    is_stopped: bool = False,
) -> str:
    """Ask for the new rate, and say when the instance ends and what happens until somebody answers."""
    billed, approved = rates(billed_usd_h, approved_usd_h)
    asked = f"{cloud} now bills {billed}, above the approved {approved}. The new rate needs an approval."
    if is_stopped:
        return f"{asked} Until then it can't start."
    runs = f"The session keeps running within the approved {usd(cap_usd)} and now ends {end:%Y-%m-%d %H:%M} UTC."
    if not may_stop:
        return f"{asked} {runs} A stop at {cloud} would not help."
    return (
        f"{asked} {runs} Once its newest checkpoint is verified, it is stopped and its disk stays. "
        f"To stop it now: {cli_command(f'stop {short}')}"
    )
