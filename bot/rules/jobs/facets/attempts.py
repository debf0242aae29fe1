"""How often a job's command is started, and after which exit codes: `attempts=3 retry-codes=75,137`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from bot.rules.jobs.facet import Detail, Fields, JobFacet, JobFacts, Key, NumberOrText, Word
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.values.bad_word import BadWord, show
from bot.wire.queue import MOST_ATTEMPTS

MOST_CODES: Final = 16
_LARGEST_CODE: Final = 255


@dataclass(frozen=True, kw_only=True)
class AttemptFields:
    """How often the command is started at most, and after which exit codes once more."""

    attempts: int = 1
    #: Empty: after each but 0.
    retry_codes: tuple[int, ...] = ()


def _read_attempts(text: str, _policy: object) -> Fields:
    """Read `3`: how often the command is started at most. Raises `BadWord`."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_ATTEMPTS:
        raise BadWord(f"{show(text)} is not a number of attempts from 1 to {MOST_ATTEMPTS}; write attempts=3.")
    return {"attempts": int(text)}


def _read_retry_codes(text: str, _policy: object) -> Fields:
    """Read `75,137`: after which exit codes the command runs again. Raises `BadWord`."""
    codes: list[int] = []
    for part in (code.strip() for code in text.split(",")):
        if not part.isascii() or not part.isdecimal() or not 1 <= int(part[:9]) <= _LARGEST_CODE:
            raise BadWord(f"{show(part)} is not an exit code from 1 to {_LARGEST_CODE}; write retry-codes=75,137.")
        if int(part) in codes:
            raise BadWord(f"The exit code {int(part)} is named twice. Keep one of the two.")
        codes.append(int(part))
    if len(codes) > MOST_CODES:
        raise BadWord(f"{len(codes)} exit codes are above the limit of {MOST_CODES}.")
    return {"retry_codes": tuple(codes)}


def _complete(fields: Fields, _policy: object) -> Fields:
    """Check that what is said of attempts belongs to a command. Raises `BadWord`."""
    if fields.get("retry_codes") and fields.get("attempts", 1) == 1:
        raise BadWord("retry-codes= needs a number of attempts above 1; add one, such as attempts=3.")
    if fields.get("attempts", 1) > 1 and fields.get("run") is None and not fields.get("queue"):
        raise BadWord('attempts= is for a command; add one, such as run="python train.py".')
    return fields


def _check(job: AttemptFields, facts: JobFacts) -> BoundsVerdict | None:
    return facts.without_agent("attempts=") if job.attempts > 1 else None


def _details(job: AttemptFields) -> Iterator[Detail]:
    if job.attempts > 1:
        yield Detail("attempts", str(job.attempts))


ATTEMPTS = JobFacet(
    fields=AttemptFields,
    check=_check,
    words=(
        Word("attempts", "NUMBER", "How often it is started at most.", "attempts=3", _read_attempts, ("max-attempts",)),
        Word("retry-codes", "CODE[,CODE]", "After which exit codes only.", "retry-codes=75", _read_retry_codes),
    ),
    keys=(
        Key(
            "attempts",
            NumberOrText | None,
            "How often the command is started at most; 1 unless said.",
            examples=[3],
        ),
        Key(
            "retry_codes",
            Annotated[list[NumberOrText], Field(max_length=16)],
            "After which exit codes it is started again; after each but 0 unless said.",
            [],
            [[75, 137]],
        ),
    ),
    complete=(_complete,),
    details=_details,
)
