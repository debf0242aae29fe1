"""Say how each cloud answered a query for offers, in the same sentences on every surface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Protocol

from bot.rules.values.phrases import not_all_read, plural
from bot.rules.values.price_age import FRESH
from bot.services.market.preflight import gave_no_answer, refusal
from providers.capabilities import PriceSource
from providers.cloud_names import cloud_title
from providers.completeness import COMPLETE, UNKNOWN, Completeness, of_all
from providers.contract import Preflight


class Answered(Protocol):
    """How one cloud answered, as the market holds it or as a document says it."""

    @property
    def cloud(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def sentence(self) -> str: ...
    @property
    def silent(self) -> bool: ...
    @property
    def set_up(self) -> bool: ...
    @property
    def read_at(self) -> datetime: ...
    @property
    def source(self) -> PriceSource: ...
    @property
    def listed_on(self) -> date | None: ...
    @property
    def completeness(self) -> Completeness: ...
    @property
    def reading(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CloudAnswer:
    """How one cloud answered: `sentence` is for people when it gave no offers, `at` is when its prices were read.

    A `silent` cloud gave no answer in time, so its offers are unknown; one that is not `set_up` was not asked. `source`
    is what it was read from, and `listed_on` is the day of its list prices. The rest of a cloud that is `reading` comes
    soon; `copied_at` is when the rest was read, where it comes from the copy of the market. One that is `refused` has
    offers that its account can't buy.
    """

    cloud: str
    ok: bool
    count: int
    at: datetime
    sentence: str = ""
    silent: bool = False
    set_up: bool = True
    source: PriceSource = PriceSource.ACCOUNT
    listed_on: date | None = None
    completeness: Completeness = UNKNOWN
    reading: bool = False
    copied_at: datetime | None = None
    refused: bool = False

    @property
    def read_at(self) -> datetime:
        """Return when its prices were read, under the name that documents use."""
        return self.at

    def age(self, now: datetime) -> str:
        """Return, for people, how many offers it gave and how old its prices are; its error when it did not answer."""
        seconds = max(int((now - self.at).total_seconds()), 0)
        old = f"{seconds} s old" if seconds < 120 else f"{seconds // 60} min old"
        return f"{self.cloud}: {plural(self.count, 'offer')}, {old}" if self.ok else self.sentence


def not_bought_from(answer: CloudAnswer, checked: Preflight) -> CloudAnswer:
    """Return a cloud's answer without offers, because the check of its account failed.

    A refused account has no offers to buy, so nothing is missing. Where the check gave no answer, they are unknown.
    """
    sentence = refusal(checked)
    completeness = Completeness.unknown(sentence) if gave_no_answer(checked) else COMPLETE
    return replace(
        answer, ok=False, count=0, sentence=sentence, completeness=completeness, reading=False,
        refused=not gave_no_answer(checked),
    )  # fmt: skip


def ended_early(answer: CloudAnswer) -> CloudAnswer:
    """Return an answer whose rest nobody waits for any more; one that is not being read stays as it is."""
    if not answer.reading:
        return answer
    return replace(answer, reading=False, completeness=Completeness.partial(not_all_read(answer.cloud)))


def silence(answers: Sequence[Answered]) -> str:
    """Say which clouds did not answer: `2 of 5 clouds did not answer: vast and runpod.` Empty where all did."""
    names = [one.cloud for one in answers if one.silent]
    asked = sum(one.set_up for one in answers)
    if not names:
        return ""
    if asked == 1:
        return f"{names[0]} did not answer."
    return f"{len(names)} of {asked} clouds did not answer: {_listed(names)}."


def without_key(answers: Iterable[Answered]) -> tuple[str, ...]:
    """Return the one sentence on clouds that were read without a key and on list prices; none where a key was used."""
    read = [one for one in answers if one.ok and one.source is not PriceSource.ACCOUNT]
    public = [one.cloud for one in read if one.source is PriceSource.PUBLIC]
    parts = [f"today's offers of {_listed(public)}"] if public else []
    parts += [_list_prices(one) for one in read if one.source is PriceSource.LIST_PRICE]
    said = f"Read without a key: {'; '.join(parts)}. To rent, set a key: `gpu-shopper doctor` names them."
    return (said,) if parts else ()


def cloud_cell(cloud: str, source: PriceSource) -> str:
    """Name an offer's cloud in a table, and mark a list price: it says nothing about what is free."""
    return f"{cloud} (list)" if source is PriceSource.LIST_PRICE else cloud


def _list_prices(one: Answered) -> str:
    if one.listed_on is None:
        return f"list prices of {one.cloud}"
    old = f", older than {FRESH.days} days" if one.read_at.date() - one.listed_on > FRESH else ""
    return f"list prices of {one.cloud} ({one.listed_on.isoformat()}{old})"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def refusals(answers: Iterable[Answered]) -> tuple[str, ...]:
    """Return the sentences about the clouds that answered with an error, cannot do it, or were not asked."""
    return tuple(one.sentence for one in answers if not one.silent and one.sentence)


def absent(answers: Sequence[Answered]) -> tuple[str, ...]:
    """Return the sentences about the clouds whose offers are not all known, those that did not answer first."""
    return (*filter(None, (silence(answers),)), *missing(answers), *refusals(answers))


def lacking(answers: Sequence[Answered]) -> str:
    """Say which clouds did not answer, and which are not read to the end; empty where nothing is missing."""
    return " ".join(filter(None, (silence(answers), *missing(answers))))


def nothing_found(
    answers: Sequence[Answered], sentence: str = "No offer fits now.", partly: str = "No offer that was read fits."
) -> str:
    """Say that nothing was found, and `partly` where not all offers were read, after which clouds are missing.

    Only these are named where no cloud answered.
    """
    if completeness_of(answers).proof is not None:
        return sentence
    lead, answered = lacking(answers), any(one.ok for one in answers)
    again = f"{lead} Try again." if lead else ""
    return f"{again} {partly}".strip() if answered or not lead else again


def completeness_of(answers: Iterable[Answered]) -> Completeness:
    """Return how complete the market is that these answers make. What nobody asked for lacks in none."""
    return of_all({cloud_title(one.cloud): one.completeness if one.set_up else COMPLETE for one in answers})


def still_reading(answers: Iterable[Answered]) -> tuple[str, ...]:
    """Name the clouds whose rest is being read."""
    return tuple(one.cloud for one in answers if one.reading)


def missing(answers: Sequence[Answered]) -> tuple[str, ...]:
    """Return the sentences about the clouds whose offers are not all known, beside those that did not answer."""
    return tuple(dict.fromkeys(one.completeness.why for one in answers if one.ok and one.completeness.why))


def most_answered(answers: Sequence[Answered]) -> bool:
    """Whether enough of the market is known to advise which limit to change."""
    silent, asked = sum(one.silent for one in answers), sum(one.set_up for one in answers)
    return 2 * silent <= asked and any(one.ok for one in answers)
