"""Write what operators and owners read about an account that can't be used, and about a balance that runs out."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final

from bot.rules.values.phrases import hours as say_hours
from bot.rules.values.phrases import plural, rate, usd
from ledger.kernel import money
from providers.cloud_names import cloud_title
from providers.errors import AuthFailed, InsufficientFunds, QuotaExceeded

_WHY: Final = {
    InsufficientFunds.code: "The team's credit at {} is used up.",
    AuthFailed.code: "{} refuses the team's key.",
    QuotaExceeded.code: "The team's quota at {} is used up.",
}
_DO: Final = {
    InsufficientFunds.code: "Pay",
    AuthFailed.code: "Check the key and the account",
    QuotaExceeded.code: "Ask for a higher quota",
}


_OWNERS: Final = {
    InsufficientFunds.code: ("the team's credit there is used up", "pay"),
    AuthFailed.code: ("the team's account there can't be used", "check it"),
    QuotaExceeded.code: ("the team's quota there is used up", "raise it"),
}


def incident(cloud: str, code: str, machines: int, rate_usd_h: Decimal, until: datetime | None, where: str) -> str:
    """Write the one message to operators: how many machines, what they cost, until when, and where to act."""
    kept = f" The machines stay until {until:%Y-%m-%d %H:%M} UTC." if until is not None else ""
    at = f" at {where}" if where else ""
    count = plural(machines, "machine")
    return (
        f"{_WHY[code].format(cloud_title(cloud))} Waiting there: {count} ({rate(rate_usd_h)}).{kept} "
        f"{_DO[code]}{at}. Nothing is launched there until the account can be used. Then the machines start again."
    )


def over(cloud: str, refused: int = 0) -> str:
    """Write that the account can be used again, and how many machines could not be started since."""
    text = (
        f"The team's account at {cloud_title(cloud)} can be used again. Machines that stopped there are started again."
    )
    return f"{text} {plural(refused, 'machine')} could not be started: the GPUs are taken." if refused else text


def paused(cloud: str, code: str) -> str:
    """Write what an owner reads whose machine stopped because of the account."""
    why, do = _OWNERS.get(code, _OWNERS[AuthFailed.code])
    return (
        f"{cloud_title(cloud)} stopped your machine because {why}. The operators were asked to {do}. "
        "Your machine starts again when the account can be used."
    )


def runway_h(credit_usd: Decimal, rate_usd_h: Decimal) -> Decimal | None:
    """Return for how many hours a balance pays at this rate; None where nothing costs anything."""
    if rate_usd_h <= 0:
        return None
    return money.down(max(credit_usd, Decimal(0)) / rate_usd_h, 1)


def runway(cloud: str, credit_usd: Decimal, rate_usd_h: Decimal, hours: Decimal, where: str) -> str:
    """Write that a balance runs out soon."""
    at = f" Pay at {where}." if where else ""
    return (
        f"The balance of {usd(credit_usd)} at {cloud_title(cloud)} pays for {say_hours(hours)} of what runs there "
        f"({rate(rate_usd_h)}). When it is used up, all machines there stop.{at}"
    )
