"""Check requests for network volumes; every client refuses with the same sentence."""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal
from typing import Final

from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import plural, usd
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel import money

#: What the labels of every cloud have room for; it is also a folder on the machines.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,22}[a-z0-9]")
SHORTEST_H, LONGEST_H = Decimal(1), Decimal(365 * 24)
USUAL_H: Final = Decimal(14 * 24)
#: No machine outlives the volume that it has mounted, so it ends this much earlier at least.
BEFORE_END_H: Final = Decimal("0.25")


def bad_name(name: str) -> BoundsVerdict | None:
    """Say what is wrong with the name of a volume."""
    if _NAME.fullmatch(name):
        return None
    said = f"“{name[:40]}” is not a volume name. Use 2 to 24 lowercase letters, digits and hyphens, such as data-1."
    return BoundsVerdict(ReplyCode.BAD_VOLUME, said)


def no_volumes(cloud: str, having: Collection[str]) -> str:
    """Say in one sentence that a cloud has no network volumes, and which ones here do."""
    others = f"These have them: {', '.join(having)}." if having else "No cloud that is set up here has them."
    return f"{cloud} has no network volumes. {others}"


def notices_usd(price_usd_h: Decimal, policy: Policy, *, grows: bool) -> Decimal:
    """Return the dollars that the days of notices cost: of a volume that grows, at the size that it may reach."""
    times = policy.volume_growth if grows else Decimal(1)
    return money.worst(price_usd_h * policy.price_tolerance * times * policy.volume_grace_days * 24)


def notices_line(size_gb: int, usd_said: str, policy: Policy, *, grows: bool) -> str:
    """Say on the card what of an approval's limit pays for the days of notices, and how far the volume may grow."""
    days = plural(policy.volume_grace_days, "day")
    if not grows:
        return f"the limit includes {usd_said} for {days} of notices before unpaid data are deleted"
    most = f"{int(size_gb * policy.volume_growth):,} GB"
    excess = f"{usd(policy.volume_excess_usd)} and one day beyond the limit"
    more = f"more growth needs an approval, or costs at most {excess}"
    return f"the limit includes {usd_said} for {days} of notices at up to {most}; {more}"


def bad_time(hours: Decimal) -> BoundsVerdict | None:
    """Say what is wrong with the time that a volume stays in all."""
    if hours.is_finite() and SHORTEST_H <= hours <= LONGEST_H:
        return None
    longest = plural(LONGEST_H / 24, "day")
    return BoundsVerdict(ReplyCode.TOO_LONG, f"A volume can stay for 1 hour to {longest} in all. Write it like 14d.")
