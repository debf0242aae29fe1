"""Read the fields of a dialog with the parsers of the `/gpu` grammar, so that both accept the same.

The functions are pure: they depend on the payload and the policy, and return each error under its block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bot.rules.grammar.commands import BY_NAME
from bot.rules.grammar.job import Draft, pair
from bot.rules.jobs.facet_table import NARROWING, WORD_OF
from bot.rules.jobs.facets.work import run_word
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.words import hours_of
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, show
from bot.rules.values.phrases import read_amount
from bot.rules.values.secret_names import value_problem
from bot.rules.values.text import UnclosedQuote, WordToken, clean, tokens
from bot.slack.inbound import WITHHELD
from bot.slack.modals import ANY, NO_PRESET, RUN_LONG

Errors = dict[str, str]

#: Blocks with the same name as the word of the grammar that reads them; `typed` is another GPU.
_BLOCKS = (
    "preset",
    "gpu",
    "typed",
    "count",
    "hours",
    "disk",
    "max",
    "price",
    "clouds",
    "spot",
    "install",
    "secrets",
    "for",
)
#: Block → its choice that says nothing.
_UNSAID = {"preset": NO_PRESET, "gpu": ANY, "hours": ANY}
#: Block that shows a missing word → blocks whose own error may be why the word is missing.
_MISSING = {"gpu": ("gpu", {"gpu", "typed", "limits", "work"}), "hours": ("hours", {"hours", "work"})}
#: Said where a run is described and a time is chosen, so that neither is dropped unsaid.
TWO_TIMES = f"Choose “{RUN_LONG}” as the time, or leave the training run empty."


def read_job(values: Mapping[str, Any], policy: Policy) -> JobRequest | Errors:
    """Read the job of a provision form, or its errors by block id."""
    values = {block: "" if value == _UNSAID.get(block) else value for block, value in values.items()}
    draft, errors = Draft(policy), Errors()
    for block in (*_BLOCKS, "limits", "work"):
        try:
            for word in _words(block, field_text(values, block)):
                draft.read(word)
        except (BadWord, UnclosedQuote) as error:
            errors[block] = str(error)[:300]
    if field_text(values, "work") and field_text(values, "hours") and "work" not in errors:
        errors["work"] = TWO_TIMES
    try:
        draft.fill()
    except BadWord as error:
        errors["preset"] = str(error)[:300]
    for needed, sentence in draft.missing(BY_NAME["provision"]):
        block, instead = _MISSING[needed]
        if not errors.keys() & instead:
            errors["work" if block == "hours" and draft.said.get("work") else block] = sentence[:300]
    return errors or draft.request(BY_NAME["provision"])


def _words(block: str, text: str) -> Iterator[WordToken]:
    """Return the words of one block: its own, or several of a kind. Raises `BadWord` for any other kind."""
    if block in _BLOCKS:
        if text:
            yield pair("gpu" if block == "typed" else block, text)
        return
    for token in tokens(text):
        key, equals, _ = token.value.lower().partition("=")
        if block == "limits" and not (equals and key in WORD_OF and WORD_OF[key].narrows):
            raise BadWord(f"{show(token.value)} is not a limit; there are {', '.join(NARROWING)}.")
        if block == "work" and not (equals and run_word(key)):
            raise BadWord(f"{show(token.value)} does not describe a run; write model=7B tokens=2B.")
        yield token


def read_reason(values: Mapping[str, Any], policy: Policy) -> str | Errors:
    """Read the reason of a rejection, or its error."""
    reason = field_text(values, "reason")
    if not reason:
        return {"reason": "Say why, so that the requester knows what to change."}
    wrong = job_bounds.reason(reason, policy)
    return {"reason": wrong.sentence} if wrong else reason


def read_extension(values: Mapping[str, Any], policy: Policy) -> tuple[Decimal, str] | Errors:
    """Read `(hours more, why)`, or the errors. The service checks whether a reason is needed."""
    try:
        hours = hours_of(field_text(values, "hours"), policy)
    except BadWord as error:
        return {"hours": str(error)[:300]}
    reason = field_text(values, "for")
    wrong = job_bounds.reason(reason, policy)
    return {"for": wrong.sentence} if wrong else (hours, reason)


def read_confirmation(values: Mapping[str, Any]) -> tuple[str, Decimal | None] | Errors:
    """Read `(the amount as typed, the lower cap in dollars)`, or the errors. Whether it matches is checked later."""
    typed, errors = field_text(values, "amount"), Errors()
    cap_usd = _read_money(values, errors, needed=True)
    return errors or (typed, cap_usd)


def read_offer(values: Mapping[str, Any]) -> tuple[str, str | None] | Errors:
    """Read `(the token of the chosen offer, the amount as typed)`, or the errors."""
    errors = Errors()
    _read_money(values, errors)
    return errors or (field_text(values, "offer"), field_text(values, "amount") or None)


def read_key(values: Mapping[str, Any]) -> str | Errors:
    """Read a public SSH key, or its error. Whether it is one of a known kind is checked later."""
    typed = field_text(values, "key")
    if typed == WITHHELD:
        return {"key": "That looks like a private key. It was not stored: make a new pair and paste the .pub file."}
    return typed or {"key": "Paste the content of your .pub file."}


def read_secret(values: Mapping[str, Any]) -> str | Errors:
    """Read the value of a secret exactly as it was typed, or its error."""
    typed = values.get("value")
    value = typed if isinstance(typed, str) else ""
    if value == WITHHELD:
        return {"value": "Slack is no place for a private key. Store it at a terminal: gpu-shopper secret set NAME."}
    wrong = value_problem(value)
    return {"value": wrong} if wrong else value


def _read_money(values: Mapping[str, Any], errors: Errors, *, needed: bool = False) -> Decimal | None:
    """Return the limit, or None without one; note what is wrong with it and with the typed amount."""
    typed, limit = field_text(values, "amount"), field_text(values, "cap")
    if (typed or needed) and read_amount(typed) is None:
        errors["amount"] = "That is not an amount of money; write it as 123.45 or $123.45."
    cap_usd = read_amount(limit) if limit else None
    if limit and not cap_usd:
        errors["cap"] = "A limit is an amount above zero, such as $2.50."
    return cap_usd


@dataclass(frozen=True, slots=True)
class Change:
    """An approval with changes: the option's token (empty: the first), a shorter time, a limit, the typed amount."""

    token: str
    hours: Decimal | None
    cap_usd: Decimal | None
    typed: str | None


def read_change(values: Mapping[str, Any], policy: Policy) -> Change | Errors:
    """Read the fields of an approval with changes, or their errors. Whether they are allowed is checked later."""
    time, errors, hours = field_text(values, "hours"), Errors(), None
    try:
        hours = hours_of(time, policy) if time else None
    except BadWord as error:
        errors["hours"] = str(error)[:300]
    cap_usd = _read_money(values, errors)
    return errors or Change(field_text(values, "offer"), hours, cap_usd, field_text(values, "amount") or None)


def field_text(values: Mapping[str, Any], block: str) -> str:
    """Return one field as one safe line; several choices are joined by commas."""
    value = values.get(block)
    if isinstance(value, list):
        return ",".join(clean(str(one)) for one in value)
    return clean(value) if isinstance(value, str) else ""
