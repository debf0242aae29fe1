"""The run that a job describes: its model, its tokens, and further words such as `seq=2048` that size it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StrictBool

from bot.rules.jobs.facet import Detail, Fields, JobFacet, Key, NumberOrText, Text, Word, plain
from bot.rules.jobs.words import as_is, whole
from bot.rules.jobs.work_words import WORK_KEYS, read
from bot.rules.policy.policy import Policy
from bot.rules.sizing.unsaid import unknown
from bot.rules.sizing.workload import Workload
from bot.rules.values.bad_word import BadWord, show

#: Words that describe a run and are words of a job as well: they are read twice, once for each.
SHARED = frozenset(["model", "tokens"])


@dataclass(frozen=True, kw_only=True)
class WorkFields:
    """What a run trains or serves."""

    model: str | None = None
    tokens: int | None = None
    #: The words that describe a run, such as `model=7B`; without them only the hours are known.
    work: tuple[str, ...] = ()


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


def workload_of(job: WorkFields) -> Workload | None:
    """Return the run that a job request describes; None when it only says how many hours."""
    return workload(job.work) if job.work else None


def unsaid(words: tuple[str, ...]) -> str:
    """List, as sentences, what a run must still specify before its time can be computed; empty if nothing is."""
    return " ".join(unknown(workload(words))) if words else ""


def run_word(key: str) -> bool:
    """Whether `key` describes a run."""
    return key in WORK_KEYS


def _read_tokens(text: str, _policy: Policy) -> Fields:
    """Read `300M`, `3B`: how many tokens the run trains on."""
    if not 0 < (amount := whole(text) or 0) <= 10**15:
        raise BadWord(f"{show(text)} is not a number of tokens; write 300M or 3B.")
    return {"tokens": amount}


def _write(work: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    for word, value in work.items():
        yield f"work.{word}", word, plain(value)


def _details(job: WorkFields) -> Iterator[Detail]:
    if job.model:
        yield Detail("model", job.model)


WORK = JobFacet(
    fields=WorkFields,
    words=(
        as_is("model", "NAME", "The model, for names and estimates.", "model=7B", "a model", r"[\w./-]{1,60}"),
        Word("tokens", "NUMBER", "How many tokens are trained on.", "tokens=3B", _read_tokens),
    ),
    keys=(
        Key(
            "work",
            Annotated[dict[Text, StrictBool | NumberOrText], Field(max_length=40)],
            "The words of a run, such as model: 7B, tokens: 2B, seq: 2048.",
            {},
            write=_write,
        ),
    ),
    details=_details,
)
