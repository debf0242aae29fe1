"""What was put into a dialog, read with the readers of the `/gpu` language, so that both say the same.

Pure: the answer depends on the payload and the policy, and errors come back under the block they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bot.rules.grammar.commands import BY_NAME
from bot.rules.grammar.job import Draft, pair
from bot.rules.grammar.job_words import KEYS, LIMIT_WORDS, BadWord, hours_of, show
from bot.rules.grammar.run_words import run_word
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import read_amount
from bot.rules.values.text import UnclosedQuote, WordToken, clean, tokens
from ledger.kernel.job import JobRequest

Errors = dict[str, str]

#: Blocks that are called as the word of the grammar that reads them; `typed` is another GPU.
_BLOCKS = ("gpu", "typed", "count", "hours", "disk", "max", "price", "clouds", "spot", "for")
#: What a missing word is said under → blocks in which something else is wrong that may be why it is missing.
_MISSING = {"gpu": ("typed", {"gpu", "typed", "limits", "work"}), "hours": ("hours", {"hours", "work"})}


def read_job(values: Mapping[str, Any], policy: Policy, *, to_rent: bool = True) -> JobRequest | Errors:
    """The job of a provision form, or what is wrong, by block id. Without `to_rent` nothing needs to be filled in."""
    draft, errors = Draft(policy), Errors()
    for block in (*_BLOCKS, "limits", "work"):
        try:
            for word in _words(block, field_text(values, block)):
                draft.read(word)
        except (BadWord, UnclosedQuote) as error:
            errors[block] = str(error)[:300]
    for needed, sentence in draft.missing(BY_NAME["provision"]) if to_rent else ():
        block, instead = _MISSING[needed]
        if not errors.keys() & instead:
            errors["work" if block == "hours" and draft.said.get("work") else block] = sentence[:300]
    return errors or draft.request(BY_NAME["provision"])


def _words(block: str, text: str) -> Iterator[WordToken]:
    """Read one block as words: its own, or several of a kind. Raises `BadWord` for any other."""
    if block in _BLOCKS:
        if text:
            yield pair("gpu" if block == "typed" else block, text)
        return
    for token in tokens(text):
        key, equals, _ = token.value.lower().partition("=")
        if block == "limits" and not (equals and key in KEYS and KEYS[key].key in LIMIT_WORDS):
            raise BadWord(f"{show(token.value)} is not a limit; there are {', '.join(LIMIT_WORDS)}.")
        if block == "work" and not (equals and run_word(key)):
            raise BadWord(f"{show(token.value)} does not describe a run; write model=7B tokens=2B.")
        yield token


def read_reason(values: Mapping[str, Any], policy: Policy) -> str | Errors:
    """The reason of a rejection, or what is wrong with it."""
    reason = field_text(values, "reason")
    if not reason:
        return {"reason": "Say why, so that the requester knows what to change."}
    wrong = job_bounds.reason(reason, policy)
    return {"reason": wrong.sentence} if wrong else reason


def read_extension(values: Mapping[str, Any], policy: Policy) -> tuple[Decimal, str] | Errors:
    """`(hours more, why)`, or what cannot be read. Whether a reason is needed is judged by the service."""
    try:
        hours = hours_of(field_text(values, "hours"), policy)
    except BadWord as error:
        return {"hours": str(error)[:300]}
    reason = field_text(values, "for")
    wrong = job_bounds.reason(reason, policy)
    return {"for": wrong.sentence} if wrong else (hours, reason)


def read_confirmation(values: Mapping[str, Any]) -> tuple[str, Decimal | None] | Errors:
    """`(the amount as typed, the lower cap in dollars)`, or what cannot be read. A match is judged later."""
    typed, limit = field_text(values, "amount"), field_text(values, "cap")
    errors: Errors = {}
    if read_amount(typed) is None:
        errors["amount"] = "That is not an amount of money; write it as 123.45 or $123.45."
    cap_usd = read_amount(limit) if limit else None
    if limit and not cap_usd:
        errors["cap"] = "A limit is an amount above zero, such as $80."
    return errors or (typed, cap_usd)


@dataclass(frozen=True, slots=True)
class Change:
    """An approval with changes: the option's token (empty: the first), a shorter time, a limit, the typed amount."""

    token: str
    hours: Decimal | None
    cap_usd: Decimal | None
    typed: str | None


def read_change(values: Mapping[str, Any], policy: Policy) -> Change | Errors:
    """The fields of an approval with changes, or what cannot be read. What is allowed is judged later."""
    time, limit, typed = (field_text(values, name) for name in ("hours", "cap", "amount"))
    errors: Errors = {}
    hours = None
    try:
        hours = hours_of(time, policy) if time else None
    except BadWord as error:
        errors["hours"] = str(error)[:300]
    cap_usd = read_amount(limit) if limit else None
    if limit and not cap_usd:
        errors["cap"] = "A limit is an amount above zero, such as $80."
    if typed and read_amount(typed) is None:
        errors["amount"] = "That is not an amount of money; write it as 123.45 or $123.45."
    return errors or Change(field_text(values, "offer"), hours, cap_usd, typed or None)


def field_text(values: Mapping[str, Any], block: str) -> str:
    """One field as one safe line; several choices are joined by commas."""
    value = values.get(block)
    if isinstance(value, list):
        return ",".join(clean(str(one)) for one in value)
    return clean(value) if isinstance(value, str) else ""
