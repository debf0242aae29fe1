"""Read a comparison of work: `compare model=7B tokens=2B` compares what the same run costs on every GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from bot.rules.grammar.commands import BY_NAME
from bot.rules.grammar.job import Draft, joined
from bot.rules.grammar.question_words import QUESTION_WORDS
from bot.rules.grammar.sizing_words import refused
from bot.rules.jobs.facets.work import run_word, workload
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.rules.sizing.unsaid import unknown
from bot.rules.sizing.workload import architecture
from bot.rules.values.bad_word import BadWord
from bot.rules.values.text import WordToken

#: The tokens that are compared where nobody said how many.
PLAIN_TOKENS: Final = "1B"
_SIZE = re.compile(r"\d+(?:\.\d+)?b(?:-a\d+(?:\.\d+)?b)?", re.IGNORECASE)
#: Words of a comparison by the hour that say nothing about work.
_BY_THE_HOUR = frozenset(word.key for word in QUESTION_WORDS) - {"budget"}


def compares_work(words: Iterable[WordToken]) -> bool:
    """Whether any word describes a run, so that work is compared and not hours."""
    return any(_SIZE.fullmatch(word.value) or (_key(word) != "hours" and run_word(_key(word))) for word in words)


def _key(word: WordToken) -> str:
    return word.value.lstrip("-").partition("=")[0].lower()


def work_to_compare(words: Sequence[WordToken], policy: Policy) -> JobRequest:
    """Return the job whose run is compared, of 1B tokens unless they were said. Raises `BadWord`."""
    draft = Draft(policy)
    for word in joined(list(words)):
        if (key := _key(word)) in _BY_THE_HOUR:
            raise BadWord(
                f"{key}= compares runs by the hour; leave it out, since the model and its tokens say how long."
            )
        draft.read(word)
    draft.fill()
    if "hours" in draft.said:
        raise BadWord("Leave the time out: the model and its tokens say how long a run takes.")
    if wrong := refused(draft.said, plans=False):
        raise BadWord(wrong)
    said = draft.said.get("work", ())
    if (medium := workload(said).medium) is not None:
        raise BadWord(f"compare counts tokens, and {medium.name} has none; write plan model={medium.name}.")
    if architecture(workload(said)) is None:
        raise BadWord(unknown(workload(said))[0])
    if workload(said).total_tokens is None:
        draft.said["work"] = (*said, f"tokens={PLAIN_TOKENS}")
    return draft.request(BY_NAME["plan"])
