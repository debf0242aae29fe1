"""Write amounts, rates and times for every sentence, and define the shape that every verdict shares."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from bot.rules.values.reply_code import ReplyCode
from ledger.kernel import money
from providers.cloud_names import cloud_title

_LARGEST = Decimal(10) ** 12
_HALF_CENT = money.CENT / 2
FREE = "free"
#: The place of an offer whose region its cloud chooses.
ANY_REGION = "any region"
#: From so many hours on nobody reads the minutes of an estimate.
_COARSE_H = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold a rule's verdict: whether it may happen, a stable `code` for programs, one `sentence` for people."""

    allowed: bool
    code: ReplyCode
    sentence: str


def deny(code: ReplyCode, sentence: str) -> Verdict:
    """Return the verdict that something may not happen."""
    return Verdict(False, code, sentence)


def looking_at_rest(clouds: Iterable[str]) -> str:
    """Say that more offers of these clouds are being read: `Still reading offers from RunPod and Vast.`"""
    return f"Still reading offers from {listed(sorted(map(cloud_title, clouds)))}."


def listed(names: Iterable[str], word: str = "and") -> str:
    """Join names as a sentence lists them: `RunPod, Vast and Lambda`."""
    every = list(names)
    return f" {word} ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


def not_all_read(cloud: str, why: str = "") -> str:
    """Say that nobody reads the rest of a cloud's offers any more: `Not all offers of Vast were read.`"""
    return f"Not all offers of {cloud_title(cloud)} were read{f' ({why})' if why else ''}."


def offers_from(cloud: str, at: datetime) -> str:
    """Say how old offers are that may have changed: `Vast's offers are from 14:02 UTC.`"""
    return f"{cloud_title(cloud)}'s offers are from {at.astimezone(UTC):%H:%M} UTC."


def usd(amount_usd: Decimal) -> str:
    """Write dollars as people read them: `$1,234.50`, `-$3.00`, and `<$0.01` for less than half a cent."""
    if 0 < amount_usd < _HALF_CENT:
        return "<$0.01"
    rounded = _rounded(amount_usd, 2)
    return f"-${-rounded:,.2f}" if rounded < 0 else f"${rounded:,.2f}"


def sum_of(parts: Iterable[tuple[str, Decimal]]) -> str:
    """Write what a total is made of, `$0.70 compute + $0.07 retries`, without parts of less than half a cent."""
    named = [(name, amount) for name, amount in parts if amount > 0]
    # The parts are rounded so that they add up to the total that stands beside them.
    rounded = money.cents_of([amount for _, amount in named])
    shown = [f"{usd(amount)} {name}" for (name, _), amount in zip(named, rounded, strict=True) if amount]
    return " + ".join(shown) if len(shown) > 1 else ""


def unreconciled(low_usd: Decimal, high_usd: Decimal) -> str:
    """Write the range of an ended instance's cost where the cloud does not report its charge."""
    low, high = usd(low_usd), usd(high_usd)
    range_ = f"between {low} and {high}" if low != high else f"by the clock {high}"
    return f"Unreconciled: its cloud does not say; {range_}."


def unsure_end(likely: str, earliest: str, latest: str, unsettled_usd: Decimal | None) -> str:
    """Say when a machine ended that nobody saw end, with its range, and what that time may have cost on top."""
    sentence = f"Its machine most likely ended {likely}, between {earliest} and {latest}."
    if not unsettled_usd:
        return sentence
    return f"{sentence} It may cost up to {usd(unsettled_usd)} more. Budgets count that until the bill, or for 30 days."


def rate(price_usd_h: Decimal) -> str:
    """Write dollars per hour: `$12.40/h`, below one dollar with a tenth of a cent (`$0.368/h`), and `free` for zero."""
    return FREE if price_usd_h == 0 else f"${_rounded(price_usd_h, 2 if price_usd_h >= 1 else 3):,f}/h"


def at_rate(price_usd_h: Decimal) -> str:
    """Write dollars per hour after what costs them: `at $0.368/h`, or `for free`."""
    return f"{'at' if price_usd_h else 'for'} {rate(price_usd_h)}"


def rates(one_usd_h: Decimal, other_usd_h: Decimal) -> tuple[str, str]:
    """Write two rates for one sentence, exact to the micro-dollar where rounding would make them look the same."""
    if one_usd_h == other_usd_h or rate(one_usd_h) != rate(other_usd_h):
        return rate(one_usd_h), rate(other_usd_h)
    return f"${_rounded(one_usd_h, 6):,f}/h", f"${_rounded(other_usd_h, 6):,f}/h"


def hours(amount: Decimal) -> str:
    """Write a time in hours or minutes: `1 hour`, `6 hours`, `1.5 hours`, `45 minutes`."""
    if 0 < amount < 1:
        return plural(_rounded(amount * 60, 0), "minute")
    return plural(_rounded(amount, 2), "hour")


def hour_limit(max_hours: Decimal) -> str:
    """Write the policy's limit on hours in front of a noun: `12-hour`, `6.5-hour`, `45-minute`."""
    return hours(max_hours).removesuffix("s").replace(" ", "-")


def brief(amount: Decimal) -> str:
    """Write a time in hours in short, to the minute: `6 h`, `1 h 40 min`, `45 min`."""
    whole_h, minutes = divmod(int(_rounded(amount * 60, 0)), 60)
    parts = [f"{whole_h:,} h"] if whole_h else []
    parts += [f"{minutes} min"] if minutes or not parts else []
    return " ".join(parts)


def seconds_in_words(seconds: int) -> str:
    """Write a time in seconds in short: `41 s`, `1 min 12 s`, `1 h 2 min`."""
    if seconds >= 3600:
        return brief(Decimal(seconds) / 3600)
    minutes, rest_s = divmod(max(seconds, 0), 60)
    return f"{minutes} min {rest_s} s" if minutes else f"{rest_s} s"


def about_hours(amount: Decimal) -> str:
    """Write an estimated time in hours in short, from 10 hours on to the hour: `1 h 40 min`, `19 h`."""
    return brief(_rounded(amount, 0) if amount >= _COARSE_H else amount)


def reliability(share: Decimal) -> str:
    """Write a reliability between 0 and 1 as `99.4%`, rounded down, so that 100% says that nothing failed."""
    return f"{money.down(share * 100, 1):.1f}%"


def place_name(region: str, country: str | None) -> str:
    """Name where an offer is in one form: its country where the cloud says it, else the cloud's own region."""
    return country or (ANY_REGION if region == "any" else region or "unknown")


def retained_disk(price_usd_h: Decimal, until: datetime) -> str:
    """Describe a retained disk for every status, with its price per hour and per month of 730 hours."""
    month = usd(price_usd_h * 730)
    return f"Its disk is kept for {rate(price_usd_h)} ({month} a month) and deleted {until:%Y-%m-%d %H:%M} UTC."


def short_hours(amount: Decimal) -> str:
    """Write a time in hours as the `/gpu` language reads it: `6h`, `90m`."""
    whole = amount == amount.to_integral_value()
    return f"{amount.to_integral_value():f}h" if whole else f"{(amount * 60).to_integral_value():f}m"


def _rounded(amount: Decimal, digits: int) -> Decimal:
    # An absurd amount is shown as a bound: Decimal refuses to round numbers of more than 28 digits. A zero has no sign.
    return money.half_up(min(max(amount, -_LARGEST), _LARGEST), digits) + 0


def plural(count: Decimal | int, noun: str) -> str:
    """Write a count with its noun: `1 hour`, `2 hours`; trailing zeros are dropped and thousands are separated."""
    text = f"{count:,f}" if isinstance(count, Decimal) else f"{count:,}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text} {noun}" if count == 1 else f"{text} {noun}s"


def read_amount(typed: str) -> Decimal | None:
    """Read dollars that a person typed (`123.45`, `$1,234`, `123.45 USD`); None when it is not one amount."""
    bare = re.sub(r"(?i)^\s*(?:us)?\$?\s*|\s*(?:usd|dollars?)?\s*$", "", typed)
    if not re.fullmatch(r"[0-9]{1,3}(,[0-9]{3}){1,3}(\.[0-9]{1,6})?|[0-9]{1,12}(\.[0-9]{1,6})?", bare):
        return None
    return Decimal(bare.replace(",", ""))


def no_key(has: str, how: str) -> str:
    """Warn before anything is bought that the requester could not log in to it.

    `has` begins the sentence: `You have` or `alice has`. `how` is the command that adds a key.
    """
    return f"{has} no SSH key here yet, so nobody could log in: {how}"
