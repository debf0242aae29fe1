"""What was put into a dialog, read with the readers of the `/gpu` language, so that both say the same.

Pure: the answer depends on the payload and the policy, and errors come back under the block they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bot.rules.grammar.job_args import JobArgs, job_request
from bot.rules.grammar.job_words import KEYS, LIMIT_WORDS, BadWord, Fields, show
from bot.rules.grammar.run_words import run_word, unsaid, work_word
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import read_amount
from bot.rules.values.text import UnclosedQuote, clean, tokens
from bot.services.plans.planner import LOOK_HOURS
from ledger.kernel.job import JobRequest

Errors = dict[str, str]

#: Blocks of the form → the word of the grammar that reads them.
_BLOCKS = {
    "gpu": "gpu",
    "typed": "gpu",
    "count": "count",
    "hours": "hours",
    "disk": "disk",
    "max": "max",
    "price": "price",
    "clouds": "clouds",
    "spot": "spot",
    "for": "for",
}


def read_job(values: Mapping[str, Any], policy: Policy, *, to_rent: bool = True) -> JobRequest | Errors:
    """The job of a provision form, or what is wrong, by block id. Without `to_rent` nothing needs to be filled in."""
    fields: Fields = {}
    errors: Errors = {}
    for block, word in _BLOCKS.items():
        text = field_text(values, block)
        if not text:
            continue
        try:
            found = KEYS[word].read(text, policy)
        except BadWord as error:
            errors[block] = str(error)[:300]
            continue
        if block == "typed":
            found["gpu_names"] = tuple(dict.fromkeys((*fields.get("gpu_names", ()), *found["gpu_names"])))
        if block == "count" and "count_min" in fields:
            errors["count"] = "The number stands with the GPU already; keep one of the two."
        fields.update(found)
    limits, problem = _limits(field_text(values, "limits"), policy)
    fields.update(limits)
    if problem:
        errors["limits"] = problem[:300]
    work, problem = _work(field_text(values, "work")) if "hours" not in fields else ((), "")
    if problem:
        errors["work"] = problem[:300]
    if to_rent and not work and not fields.get("gpu_names") and not errors.keys() & {"gpu", "typed", "work"}:
        errors["typed"] = "Choose a GPU above or type one, such as 4090."
    if to_rent and not work and "hours" not in fields and not errors.keys() & {"hours", "work"}:
        errors["hours"] = "Say for how long, such as 6h or 90m."
    if work and "count_min" not in fields:
        fields["count_max"] = policy.max_gpus
    return errors or job_request(JobArgs(**fields, work=work), policy, LOOK_HOURS)


def _limits(text: str, policy: Policy) -> tuple[Fields, str]:
    """What further limits say, or what is wrong with one of them."""
    fields: Fields = {}
    try:
        for token in tokens(clean(text)):
            key, equals, value = token.value.partition("=")
            word = KEYS.get(key.lower())
            if not equals or word is None or word.key not in LIMIT_WORDS:
                return {}, f"{show(token.value)} is not a limit; there are {', '.join(LIMIT_WORDS)}."
            fields.update(word.read(value, policy))
    except UnclosedQuote:
        return {}, "This quote is not closed."
    except BadWord as error:
        return {}, str(error)
    return fields, ""


def _work(text: str) -> tuple[tuple[str, ...], str]:
    """The words that describe a run, or what is wrong with them or still missing."""
    words: tuple[str, ...] = ()
    try:
        for token in tokens(clean(text)):
            key, equals, value = token.value.partition("=")
            if not equals or not run_word(key.lower()):
                return (), f"{show(token.value)} does not describe a run; write model=7B tokens=2B."
            words = work_word(key.lower(), value, words)
    except UnclosedQuote:
        return (), "This quote is not closed."
    except BadWord as error:
        return (), str(error)
    return words, unsaid(words)


def read_reason(values: Mapping[str, Any], policy: Policy) -> str | Errors:
    """The reason of a rejection, or what is wrong with it."""
    reason = field_text(values, "reason")
    if not reason:
        return {"reason": "Say why, so that the requester knows what to change."}
    if len(reason) > policy.max_reason_chars:
        return {"reason": f"The reason has {len(reason):,} characters; {policy.max_reason_chars:,} is the most."}
    return reason


def read_extension(values: Mapping[str, Any], policy: Policy) -> tuple[Decimal, str] | Errors:
    """`(hours more, why)`, or what cannot be read. Whether a reason is needed is judged by the service."""
    try:
        hours: Decimal = KEYS["hours"].read(field_text(values, "hours"), policy)["hours"]
    except BadWord as error:
        return {"hours": str(error)[:300]}
    reason = field_text(values, "for")
    if len(reason) > policy.max_reason_chars:
        return {"for": f"The reason has {len(reason):,} characters; {policy.max_reason_chars:,} is the most."}
    return hours, reason


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
        hours = KEYS["hours"].read(time, policy)["hours"] if time else None
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
