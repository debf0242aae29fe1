"""Read the words of a comparison by the hour: `compare budget=500 hours=2 buffer=10%`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from bot.rules.jobs.facet import Fields, Word, sets
from bot.rules.jobs.facets.when import read_hours
from bot.rules.plans.comparison import PLAIN_BUDGETS, PLAIN_BUFFER, ComparisonQuestion
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, near, show
from bot.rules.values.phrases import read_amount
from bot.rules.values.text import WordToken

MOST_BUDGETS = 5


def _amount(text: str) -> Decimal:
    found = read_amount(text)
    if found is None:
        raise BadWord(f"{show(text)} is not an amount of money; write 500 or $1,000.")
    return found


def _share(text: str) -> Decimal:
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,6})?)(%?)", text)
    if found is None:
        raise BadWord(f"{show(text)} is not a share; write 10% or 0.1.")
    return Decimal(found[1]) / (100 if found[2] else 1)


def _budgets(text: str, _policy: Policy) -> Fields:
    amounts = tuple(_amount(part) for part in re.split(r"[;+]|,(?!\d{3}(?:\D|$))", text))
    if len(amounts) > MOST_BUDGETS:
        raise BadWord(f"At most {MOST_BUDGETS} budgets are compared at once.")
    return {"budgets_usd": amounts}


QUESTION_WORDS: tuple[Word, ...] = (
    Word("budget", "MONEY[,MONEY]", "What there is to spend; one block of runs each.", "budget=500", _budgets),
    Word("hours", "TIME", "How long one run takes; 1 hour unless said.", "hours=2", read_hours),
    Word("buffer", "SHARE", "Kept for retries and restarts; 10% unless said.", "buffer=10%", sets("buffer", _share)),
    Word("baseline", "MONEY", "A price per hour to measure savings.", "baseline=3.67", sets("baseline_usd_h", _amount)),
    Word("success", "SHARE", "How many runs succeed: cost per success.", "success=80%", sets("success_rate", _share)),
    Word("value", "MONEY", "What one success is worth; needs success=.", "value=$1,000", sets("value_usd", _amount)),
)
_QUESTION: Mapping[str, Word] = {word.key: word for word in QUESTION_WORDS}


def question_word(word: WordToken, policy: Policy) -> Fields:
    """Read one word of a comparison; an amount such as $50 alone is the budget. Raises `BadWord`."""
    if re.fullmatch(r"\$[\d.,;$]+k?", word.value, re.IGNORECASE):
        return _budgets(word.value, policy)
    key, equals, value = word.value.lstrip("-").partition("=")
    found = _QUESTION.get(key.lower())
    if found is None:
        known = ", ".join(_QUESTION)
        raise BadWord(f"{show(word.value)} is not a known word. Words are {known}.{near(key, _QUESTION)}")
    if not equals or not value:
        raise BadWord(f"{found.key}= needs a value; write {found.example}.")
    return found.read(value, policy)


def question(fields: Fields) -> ComparisonQuestion:
    """Make a comparison's question: usual budgets, 1 hour, 10% buffer unless said. Raises `BadWord`."""
    plain: Fields = {"hours": Decimal(1), "budgets_usd": PLAIN_BUDGETS, "buffer": PLAIN_BUFFER}
    try:
        return ComparisonQuestion(**{**plain, **fields}).checked()
    except ValueError as error:
        raise BadWord(str(error)) from error
