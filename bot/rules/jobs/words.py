"""Read the values that several words of a job share: times, amounts of money, numbers, yes and no."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from bot.rules.jobs.facet import Fields, Word
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.pricing.hours_cap import check
from bot.rules.values.bad_word import BadWord, near, show
from bot.rules.values.phrases import read_amount

_UNIT_HOURS: Mapping[str, Decimal] = {"d": Decimal(24), "h": Decimal(1), "m": Decimal(1) / 60}
TOKEN_UNITS: Mapping[str, int] = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}

NUMBER = r"(\d{1,15}(?:\.\d{1,6})?)([kmbt]?)"
DURATION = r"-?(?:\d+(?:\.\d+)?(?:days?|d|hours?|hrs?|h|minutes?|mins?|m))+"
_DURATION = re.compile(DURATION)
_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_AMOUNT_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)([dhm])")


def hours_of(text: str, policy: Policy) -> Decimal:
    """Read hours from `6`, `6h`, `90m`, `1h30m` or `2d`; the bounds are the policy's. Raises `BadWord`."""
    total = duration(text)
    if total is None:
        raise BadWord(f"{show(text)} is not a time; write 6h, 90m or 1h30m.")
    judged = check(total, Decimal(0), policy)
    if not judged.allowed:
        raise BadWord(judged.sentence)
    return round(total, 6)


def duration(text: str) -> Decimal | None:
    """Read a time as hours, negative ones too; None for anything else."""
    bare = text.lower().replace(" ", "")
    bare += "h" if _PLAIN_NUMBER.fullmatch(bare) else ""
    if not _DURATION.fullmatch(bare):
        return None
    units = _AMOUNT_AND_UNIT.findall(bare)
    total = sum((Decimal(number) * _UNIT_HOURS[unit] for number, unit in units), Decimal(0))
    return -total if bare.startswith("-") else total


def dollars(text: str) -> Decimal:
    """Read `$50` or `0.75`, within the bounds of what a job may cost. Raises `BadWord`."""
    below_zero = re.match(r"\s*\$?\s*-", text)
    amount = Decimal(-1) if below_zero else read_amount(text)
    if amount is None:
        raise BadWord(f"{show(text)} is not an amount of money; write $50 or 0.75.")
    if wrong := job_bounds.money(amount):
        raise BadWord(wrong.sentence)
    return amount


def dollars_per_hour(text: str) -> Decimal:
    """Read `$2.50/h` or `2.50`. Raises `BadWord`."""
    return dollars(re.sub(r"/h(?:our|r)?$", "", text))


def yes_or_no(text: str, key: str) -> bool:
    """Read `key=yes` or `key=no`. Raises `BadWord`."""
    answers = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if text.lower() not in answers:
        raise BadWord(f"{show(text)} does not answer {key}; write {key}=yes or {key}=no.{near(text, answers)}")
    return answers[text.lower()]


def whole(text: str) -> int | None:
    """Read a whole number, with `k`, `M`, `B` or `T`; None for anything else."""
    found = re.fullmatch(NUMBER, text.lower())
    return int(Decimal(found[1]) * TOKEN_UNITS[found[2]]) if found else None


def as_is(key: str, value: str, doc: str, example: str, what: str, pattern: str, *aliases: str) -> Word:
    """Make a word whose value is passed on as it is when it has the right shape."""

    def read(text: str, _policy: Policy) -> Fields:
        if not re.fullmatch(pattern, text):
            raise BadWord(f"{show(text)} is not {what}; write {example}.")
        return {key: text}

    return Word(key, value, doc, example, read, aliases)
