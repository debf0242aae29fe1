"""Say when steady use would have been cheaper with a reservation: by public prices, and by the use of 30 days.

A reservation is paid for every hour, used or not. It is compared with what the same GPU-hours cost on demand, on the
days on which they were used: a reserved GPU replaces at most 24 GPU-hours of a day. The sentence names what to ask for;
it is no offer, because a seller's "from" price is the lowest of its terms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, Decimal

from bot.rules.values.phrases import plural, rate, usd
from bot.rules.values.price_age import FRESH
from ledger.kernel import money

#: Days of use that are looked at.
DAYS = 30
#: A reservation is worth a sentence from this share of the costs on.
LEAST_SHARE = Decimal("0.10")
_HOUR = timedelta(hours=1)
_DAY_H = 24
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Describe the lowest public price of one reserved GPU, in dollars per hour, as the source said on the day."""

    seller: str
    gpu: str
    price_usd_h: Decimal
    as_of: date
    source: str


_HYPERSTACK = (
    "https://www.hyperstack.cloud/gpu-pricing, reserved, from; read in api-evangelist/nexgen-cloud "
    "plans/nexgen-cloud-plans-pricing.yml @0fa0509"
)


def _hyperstack(gpu: str, price_usd_h: str) -> Reservation:
    return Reservation("Hyperstack", gpu, Decimal(price_usd_h), date(2026, 8, 26), _HYPERSTACK)


RESERVATIONS: tuple[Reservation, ...] = (
    _hyperstack("B200", "5.10"),
    _hyperstack("H200", "2.79"),
    _hyperstack("H100-SXM", "2.72"),
    _hyperstack("H100-PCIE", "1.75"),
    _hyperstack("A100-SXM-80GB", "1.36"),
    _hyperstack("A100-PCIE-80GB", "0.95"),
    _hyperstack("RTXPRO6000-S", "1.30"),
    _hyperstack("L40", "0.70"),
    _hyperstack("A6000", "0.35"),
    _hyperstack("A4000", "0.11"),
)


@dataclass(frozen=True, slots=True)
class Used:
    """Hold one time in which an instance was billed for its GPUs; `price_usd_h` is that of the whole instance."""

    cloud: str
    gpu: str
    count: int
    price_usd_h: Decimal
    since: datetime
    until: datetime
    stops: tuple[tuple[datetime, bool], ...] = ()


def first_working_day(day: date) -> date:
    """Return the first day from Monday to Friday of the month that a day lies in."""
    first = day.replace(day=1)
    return first + timedelta(days=(7 - first.weekday()) % 7 if first.weekday() > 4 else 0)


def advice(
    used: Iterable[Used], until: datetime, today: date, prices: Sequence[Reservation] = RESERVATIONS
) -> tuple[str, ...]:
    """Write one sentence for each cloud and GPU whose use of the last 30 days a reservation would have made cheaper.

    The greatest saving comes first. Prices that are older than 180 days are named as such.
    """
    by_day: dict[tuple[str, str], list[Decimal]] = defaultdict(lambda: [_ZERO] * DAYS)
    paid: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    begin = until - timedelta(days=DAYS)
    for one in used:
        for since, end in _running(one):
            for number in range(DAYS):
                day = begin + timedelta(days=number)
                hours = _hours(max(since, day), min(end, day + timedelta(days=1)))
                by_day[one.cloud, one.gpu][number] += hours * one.count
                paid[one.cloud, one.gpu] += hours * one.price_usd_h
    found = [_best(key, days, paid[key], prices, today) for key, days in by_day.items()]
    return tuple(sentence for _, sentence in sorted(filter(None, found), key=lambda one: (-one[0], one[1])))


def _best(
    key: tuple[str, str], days: Sequence[Decimal], paid_usd: Decimal, prices: Sequence[Reservation], today: date
) -> tuple[Decimal, str] | None:
    """Return what the best reservation would have saved, and its sentence; None where none saves enough."""
    cloud, gpu = key
    known = [one for one in prices if one.gpu == gpu]
    hours = sum(days, _ZERO)
    if not known or not hours:
        return None
    cheapest = min(known, key=lambda one: one.price_usd_h)
    rate_usd_h = paid_usd / hours
    most = int((max(days) / _DAY_H).to_integral_value(rounding=ROUND_CEILING))
    saved = {count: _saved(days, count, rate_usd_h, cheapest.price_usd_h) for count in range(1, most + 1)}
    count = max(saved, key=lambda one: saved[one])
    if saved[count] < LEAST_SHARE * paid_usd:
        return None
    old = f" The price is older than {FRESH.days} days." if today - cheapest.as_of > FRESH else ""
    return saved[count], (
        f"{gpu} at {cloud}: {plural(round(hours), 'GPU-hour')} in {DAYS} days cost {usd(money.cents_even(paid_usd))}. "
        f"{plural(count, 'reserved GPU')}, at {cheapest.seller} from {rate(cheapest.price_usd_h)} each, would have "
        f"saved about {usd(money.cents_even(saved[count]))} "
        f"(public price of {cheapest.as_of:%Y-%m-%d}).{old}"
    )


def _saved(days: Sequence[Decimal], count: int, rate_usd_h: Decimal, price_usd_h: Decimal) -> Decimal:
    """Return what so many reserved GPUs would have saved: the use that they replace, less what they cost always."""
    replaced = sum((min(hours, Decimal(_DAY_H * count)) for hours in days), _ZERO)
    return replaced * rate_usd_h - price_usd_h * _DAY_H * DAYS * count


def _running(one: Used) -> Iterable[tuple[datetime, datetime]]:
    """Yield the times in which an instance was not stopped."""
    since: datetime | None = one.since
    for at, stopped in one.stops:
        if stopped and since is not None:
            yield since, min(at, one.until)
            since = None
        elif not stopped and since is None:
            since = at
    if since is not None:
        yield since, one.until


def _hours(since: datetime, until: datetime) -> Decimal:
    return Decimal(str(max(until - since, timedelta(0)) / _HOUR))
