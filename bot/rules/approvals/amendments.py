"""Approve with changes: a shorter time or a lower limit.

A digest of the terms as they are keeps approvers from deciding on terms that changed since they looked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from bot.rules.market.estimate import Component, Estimate
from bot.rules.values.phrases import Verdict, deny, hours, usd
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel import money

#: Parts of an estimate that do not shrink with the time.
FIXED: Final = frozenset({"start-up", "transfer", "hold", "notices"})
#: Parts that the price of an hour does not include, and the share of the total from which a card names them.
BESIDES_HOURS: Final = frozenset({"start-up", "transfer", "retries", "interruptions"})
SHOWN_SHARE: Final = Decimal("0.1")
#: Some clouds bill this much at least, so a shorter time is not expected to cost less.
LEAST_BILLED_H: Final = Decimal(1)
SHORTEST_H: Final = Decimal(1) / 60


@dataclass(frozen=True, slots=True)
class AmendedTerms:
    """Hold the hours and the total cap that approvers changed: `hours` and `cap_usd`, each None if unchanged."""

    request_id: str
    version: int
    hours: Decimal | None = None
    cap_usd: Decimal | None = None

    @property
    def is_changed(self) -> bool:
        """Whether it differs from what the offers said."""
        return self.hours is not None or self.cap_usd is not None

    @property
    def digest(self) -> str:
        """Return twelve hex digits that change with any of these terms."""
        said = [self.request_id, self.version, _plain(self.hours), _plain(self.cap_usd)]
        return hashlib.sha256(repr(said).encode()).hexdigest()[:12]


def covered(request_id: str, version: int, offer_id: str, amounts: tuple[Decimal, Decimal], time_h: Decimal) -> str:
    """Return the digest of what one approval covers: an offer, its `(price cap per hour, total cap)`, and hours."""
    said = [request_id, version, offer_id, *map(_plain, amounts), _plain(time_h)]
    return hashlib.sha256(repr(said).encode()).hexdigest()


def shortened(
    estimate: Estimate, asked_h: Decimal, time_h: Decimal, least_h: Decimal = LEAST_BILLED_H
) -> tuple[Decimal, Decimal]:
    """Return `(expected, worst)` dollars for fewer hours (`least_h` or more); only parts that grow with time shrink."""
    parts = parts_for(estimate.components, asked_h, time_h, least_h)
    expected = sum((part.expected_usd for part in parts), Decimal(0))
    worst = sum((part.worst_usd for part in parts), Decimal(0))
    return money.amount(min(expected, estimate.expected_usd)), money.amount(min(worst, estimate.worst_usd))


def parts_for(
    parts: Sequence[Component], asked_h: Decimal, time_h: Decimal, least_h: Decimal = LEAST_BILLED_H
) -> list[Component]:
    """Return the parts of an estimate for these hours: those that grow with time shrink with them."""
    share = min(max(time_h, least_h) / asked_h, Decimal(1))
    of = [Decimal(1) if part.name in FIXED else share for part in parts]
    return [
        Component(part.name, part.expected_usd * by, part.worst_usd * by) for part, by in zip(parts, of, strict=True)
    ]


def besides_hours(parts: Sequence[Component]) -> str:
    """Say what an expected total holds besides its hours, where that is a tenth or more: `$0.20 transfer`; else empty.

    The price of an hour includes its disk.
    """
    total_usd = sum((part.expected_usd for part in parts), Decimal(0))
    rounded = zip(parts, money.cents_of([part.expected_usd for part in parts]), strict=True)
    extra = {part.name: amount for part, amount in rounded if part.name in BESIDES_HOURS and amount > 0}
    extra_usd = sum(extra.values(), Decimal(0))
    if not extra or extra_usd < total_usd * SHOWN_SHARE:
        return ""
    return f"{usd(extra_usd)} {next(iter(extra)) if len(extra) == 1 else 'extras'}"


def may_shorten(time_h: Decimal | None, most_h: Decimal, *, can: bool) -> Verdict | None:
    """Refuse hours that an approver may not set; None when they may.

    `most_h` is what was asked, or what an earlier approver left.
    """
    if time_h is None:
        return None
    if not can:
        sentence = "This request has no hours to shorten. Approve it or reject it."
        return deny(ReplyCode.NOT_CHANGEABLE, sentence)
    if not time_h.is_finite() or time_h < SHORTEST_H:
        return deny(ReplyCode.BAD_HOURS, "Give a minute or more, such as 4h.")
    if time_h > most_h:
        return deny(ReplyCode.HOURS_RAISED, f"The time can't be above {hours(most_h)}.")
    return None


def amendment_summary(asked_h: Decimal, time_h: Decimal, cap_usd: Decimal | None, other_offer: str) -> str:
    """Summarize for the requester what an approval changed; empty if it approved the first offer as requested."""
    said = [
        f"{hours(time_h)} instead of {hours(asked_h)}" if time_h < asked_h else "",
        f"at most {usd(cap_usd)} in all" if cap_usd is not None else "",
        f"{other_offer} instead of the offer shown first" if other_offer else "",
    ]
    return ", ".join(filter(None, said))


def _plain(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount.normalize():f}"
