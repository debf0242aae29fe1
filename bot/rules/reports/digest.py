"""Decide when a digest is due and which time it covers, forecast the month, and find unusual costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bot.rules.values.phrases import usd

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: Days whose costs an anomaly is measured against, and how many of them must be known.
BASE_DAYS = 14
LEAST_DAYS = 3
#: A cost is unusual above this many times the mean, and by at least so many dollars.
TIMES = 3
AT_LEAST_USD = Decimal(5)
#: Days whose mean a forecast continues with; while fewer are known there is none.
TREND_DAYS = 7


@dataclass(frozen=True, slots=True)
class Window:
    """Hold a day or a week [since, until) of the local calendar, with the month that its last day lies in."""

    first: date
    last: date
    since: datetime
    until: datetime
    month_since: datetime
    month_until: datetime


def problems(at: str, zone: str, weekly: str) -> Iterator[str]:
    """Say what is wrong with a policy's settings of the digest: one sentence each."""
    if at and read_time(at) is None:
        yield f"digest_at is a time such as 09:00, or nothing for no digest, not {at}"
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield f"digest_timezone is a name such as Europe/Berlin, not {zone}"
    if weekly and weekly not in WEEKDAYS:
        yield f"digest_weekly is one of {', '.join(WEEKDAYS)}, or nothing, not {weekly}"


def read_time(text: str) -> time | None:
    """Read a time of day such as `09:00`; None for anything else."""
    try:
        return datetime.strptime(text, "%H:%M").replace(tzinfo=UTC).time()
    except ValueError:
        return None


def due_day(now: datetime, at: str, zone: str) -> date | None:
    """Return the day (today or yesterday) on which the newest digest, about the day before it, was due; or None."""
    when = read_time(at)
    if when is None:
        return None
    local = now.astimezone(ZoneInfo(zone))
    return local.date() if local.time() >= when else local.date() - timedelta(days=1)


def day_before(day: date, zone: str) -> Window:
    """Return the day before `day`."""
    return _window(day - timedelta(days=1), day - timedelta(days=1), zone)


def week_before(day: date, zone: str) -> Window:
    """Return the seven days before `day`."""
    return _window(day - timedelta(days=7), day - timedelta(days=1), zone)


def _window(first: date, last: date, zone: str) -> Window:
    month = last.replace(day=1)
    following = (month + timedelta(days=31)).replace(day=1)
    return Window(
        first,
        last,
        _begins(first, zone),
        _begins(last + timedelta(days=1), zone),
        _begins(month, zone),
        _begins(following, zone),
    )


def _begins(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC)


def days(first: date, last: date, zone: str) -> list[tuple[date, datetime, datetime]]:
    """Return each day from `first` to `last` with its begin and end; one of 23 or 25 hours where clocks change."""
    every = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    return [(day, _begins(day, zone), _begins(day + timedelta(days=1), zone)) for day in every]


def forecast(month_usd: Decimal, recent_usd: Sequence[Decimal], window: Window) -> Decimal | None:
    """Forecast the month's cost if its remaining days cost what the last seven did on average; None before seven."""
    recent = recent_usd[-TREND_DAYS:]
    if len(recent) < TREND_DAYS:
        return None
    left = Decimal(str((window.month_until - window.until) / timedelta(days=1)))
    return month_usd + sum(recent, Decimal(0)) / TREND_DAYS * max(left, Decimal(0))


def anomalies(of: str, now_usd: Mapping[str, Decimal], base_usd: Mapping[str, Decimal], base_days: int) -> list[str]:
    """Write sentences about the names of a group (`of`) that cost far more than usual, the greatest first.

    `base_usd` is what the `base_days` days before cost together; while those are few, nothing counts as usual.
    """
    if base_days < LEAST_DAYS:
        return []
    found = []
    for name, amount in now_usd.items():
        usual = base_usd.get(name, Decimal(0)) / base_days
        if amount > TIMES * usual and amount - usual >= AT_LEAST_USD:
            often = f"usually {usd(usual)} a day" if usual else "usually nothing"
            found.append((amount - usual, f"{of} {name or 'none'}: {usd(amount)}, {often}"))
    return [sentence for _, sentence in sorted(found, key=lambda one: (-one[0], one[1]))]


def saved(rate_usd_h: Decimal, stops: Sequence[tuple[datetime, bool]], since: datetime, until: datetime) -> Decimal:
    """Return what stopping an instance saved in [since, until): `stops` are its stops (True) and starts (False)."""
    if not stops:
        return Decimal(0)
    stopped_for, began = timedelta(0), None
    for at, stopped in stops:
        if stopped:
            began = at
        elif began is not None:
            stopped_for += max(min(at, until) - max(began, since), timedelta(0))
            began = None
    if began is not None:
        stopped_for += max(until - max(began, since), timedelta(0))
    return rate_usd_h * Decimal(str(stopped_for / timedelta(hours=1)))
