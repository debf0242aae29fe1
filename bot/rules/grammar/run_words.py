"""Read the words of runs and comparisons in the `/gpu` language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from bot.rules.grammar.bad_word import BadWord, near, show
from bot.rules.grammar.job_words import Fields, Word, one, read_hours
from bot.rules.grammar.workload_words import WORK_KEYS, read
from bot.rules.jobs.job import JobRequest
from bot.rules.plans.comparison import PLAIN_BUDGETS, PLAIN_BUFFER, ComparisonQuestion
from bot.rules.policy.policy import Policy
from bot.rules.sizing.unsaid import unknown
from bot.rules.sizing.workload import Workload
from bot.rules.values.phrases import read_amount
from bot.rules.values.text import WordToken

#: Words that describe a run and are words of a job as well: they are read twice, once for each.
SHARED = frozenset(["model", "tokens"])
MOST_BUDGETS = 5


def work_word(key: str, value: str, said: tuple[str, ...]) -> tuple[str, ...]:
    """Add one word to those of a run. Raises `BadWord` with a sentence that names what is wrong."""
    if any(word.startswith(f"{key}=") for word in said):
        raise BadWord(f"{show(key)} is said twice; keep one of the two.")
    if not value:
        raise BadWord(f"{key}= needs a value; write {WORK_KEYS[key].example}.")
    words = (*said, f"{key}={value}")
    workload(words)
    return words


def workload(words: tuple[str, ...]) -> Workload:
    """Read the run behind `key=value` words. Raises `BadWord`."""
    return read(dict(word.split("=", 1) for word in words))


def workload_of(job: JobRequest) -> Workload | None:
    """Return the run that a job request describes; None when it only says how many hours."""
    return workload(job.work) if job.work else None


def unsaid(words: tuple[str, ...]) -> str:
    """List, as sentences, what a run must still specify before its time can be computed; empty if nothing is."""
    return " ".join(unknown(workload(words))) if words else ""


# ── compare ──────────────────────────────────────────────────────────────────────────────────────


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
    Word("buffer", "SHARE", "Kept for retries and restarts; 10% unless said.", "buffer=10%", one("buffer", _share)),
    Word("baseline", "MONEY", "A price per hour to measure savings.", "baseline=3.67", one("baseline_usd_h", _amount)),
    Word("success", "SHARE", "How many runs succeed: cost per success.", "success=80%", one("success_rate", _share)),
    Word("value", "MONEY", "What one success is worth; needs success=.", "value=$1,000", one("value_usd", _amount)),
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


def run_word(key: str) -> bool:
    """Whether `key` describes a run."""
    return key in WORK_KEYS
