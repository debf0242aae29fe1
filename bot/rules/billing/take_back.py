"""Take back what was booked beyond the end of an instance that became known later.

Hours are booked while they complete, so those after an end that nobody saw are in the ledger. Each piece of billed time
loses the share that lies behind the end.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from bot.rules.billing.metering import HOUR_S, billed_s, seconds
from ledger.kernel import money
from providers.capabilities import BillingRule

_HOUR, _STOP, _RATE = re.compile(r"/h([0-9]+)$"), re.compile(r"/stop-([0-9]+)$"), re.compile(r"/rate-\w+$")
_DISK = re.compile(r"/disk/([0-9]+)/(?:h[0-9]+|final)$")


@dataclass(frozen=True, slots=True)
class BookedPiece:
    """One entry of an instance's use: `amount_usd` is below 0 where money was given back."""

    key: str
    component: str
    amount_usd: Decimal
    at: datetime


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """From when a component is billed, and when its likely end is; `rule` says which steps its cloud bills."""

    start: datetime
    end: datetime
    rule: BillingRule

    @property
    def used_s(self) -> int:
        """Return the seconds that its cloud bills until the end."""
        used = seconds(self.start, self.end)
        return billed_s(max(used, Decimal(1)) if self.rule.minimum_s and used >= 0 else used, self.rule)


def hours_are_booked(booked: Iterable[BookedPiece], component: str, span: EndedSpan) -> bool:
    """Whether the hour in which the end lies is booked as a whole, so that no last piece is due."""
    last = max((int(m[1]) + 1 for one in booked if one.component == component and (m := _own_hour(one))), default=0)
    return last * HOUR_S > seconds(span.start, span.end)


def surplus(booked: Iterable[BookedPiece], spans: Mapping[str, EndedSpan]) -> dict[tuple[str, date], BookedPiece]:
    """Return what lies behind the end, by component and day: the amount, and the last moment that it was booked for.

    `booked` are all entries of the instance that end behind it, and all its parts of hours: a stop cuts an hour.
    """
    pieces = list(booked)
    stops: dict[str, list[int]] = defaultdict(list)
    for one in pieces:
        if m := _STOP.search(one.key):
            stops[one.component].append(int(m[1]))
    found: dict[tuple[str, date], BookedPiece] = {}
    for one in pieces:
        span = spans.get(one.component)
        usd = money.amount(one.amount_usd * _share_behind(one, span, stops[one.component])) if span else Decimal(0)
        if usd:
            of = (one.component, one.at.date())
            before = found.get(of, BookedPiece("", one.component, Decimal(0), one.at))
            found[of] = BookedPiece("", one.component, before.amount_usd + usd, max(before.at, one.at))
    return found


def _own_hour(one: BookedPiece) -> re.Match[str] | None:
    return None if _DISK.search(one.key) else _HOUR.search(one.key)


def _share_behind(one: BookedPiece, span: EndedSpan, stops: Iterable[int]) -> Decimal:
    """Return which share of a piece's time lies behind the end, between 0 and 1."""
    if m := _DISK.search(one.key):  # A retained disk counts its hours from its own beginning.
        since_s = Decimal(m[1])
        first = Decimal(str(one.at.timestamp())) - since_s
        begins, ends = (first - 1) // HOUR_S * HOUR_S, first
        used = Decimal(billed_s(Decimal(str(span.end.timestamp())) - since_s, BillingRule(span.rule.quantum_s)))
    else:
        used = Decimal(span.used_s)
        if m := _own_hour(one):
            ends = Decimal((int(m[1]) + 1) * HOUR_S)
        elif m := _STOP.search(one.key):
            ends = Decimal(int(m[1]))
        elif _RATE.search(one.key):
            ends = seconds(span.start, one.at)
        else:
            return Decimal(0)
        hour = (ends.to_integral_value() - 1) // HOUR_S * HOUR_S
        begins = max([hour, *(Decimal(stop) for stop in stops if stop < ends)])
    if ends <= begins:
        return Decimal(0)
    return min(max(ends - max(begins, used), Decimal(0)) / (ends - begins), Decimal(1))
