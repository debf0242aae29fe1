"""Read the moments of a request that waits: `20:00`, `2026-12-01`, `2026-12-01T20:00+01:00`, or `6h` from now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal

from bot.rules.values.bad_word import BadWord

_SPAN = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)(d|h|m)")
_MOMENT = re.compile(
    r"(?:(?P<day>\d{4}-\d{2}-\d{2})(?:[t ](?=\d))?)?(?P<clock>\d{1,2}:\d{2})?"
    r"(?P<zone>z|utc|[+-]\d{2}:\d{2})?"
)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60}


def read_moment(text: str, key: str) -> str:
    """Return a moment in its short form, to be resolved when the request is made. Raises `BadWord`."""
    bare = " ".join(text.lower().split())
    if _SPAN.fullmatch(bare):
        return bare
    found = _MOMENT.fullmatch(bare)
    try:
        if found is None or not (found["day"] or found["clock"]) or (found["zone"] and not found["clock"]):
            raise ValueError(bare)
        if found["day"]:
            datetime.fromisoformat(found["day"])
        if found["clock"]:
            _clock(found["clock"], found["zone"])
    except ValueError as error:
        raise BadWord(
            f"“{text[:40]}” is not a moment; write {key}=20:00 (UTC), {key}=20:00+02:00, {key}=2026-12-01, "
            f"{key}=2026-12-01T20:00 or {key}=6h."
        ) from error
    return bare


def resolve(text: str, after: datetime, *, end_of_day: bool) -> datetime:
    """Return the moment that `read_moment` read, seen from `after`.

    A time of day is its next one. A day alone is its beginning or, with `end_of_day`, its end, in UTC.
    """
    if span := _SPAN.fullmatch(text):
        return after + timedelta(seconds=float(Decimal(span[1]) * _SECONDS[span[2]]))
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} was not read by read_moment")
    day, clock = found["day"], found["clock"]
    if day and not clock:
        return datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1 if end_of_day else 0)
    at = _clock(clock, found["zone"])
    if day:
        return datetime.combine(datetime.fromisoformat(day), at).astimezone(UTC)
    first = datetime.combine(after.astimezone(at.tzinfo), at).astimezone(UTC)
    return first if first > after else first + timedelta(days=1)


def _clock(clock: str, zone: str | None) -> time:
    """Return a time of day with its zone; ValueError for one that no clock shows."""
    hour, minute = map(int, clock.split(":"))
    if zone in (None, "z", "utc"):
        return time(hour, minute, tzinfo=UTC)
    sign, (hours, minutes) = -1 if zone[0] == "-" else 1, map(int, zone[1:].split(":"))
    return time(hour, minute, tzinfo=timezone(sign * timedelta(hours=hours, minutes=minutes)))
