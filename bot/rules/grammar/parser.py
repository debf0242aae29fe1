"""Parse the `/gpu` language: `4xA100-80GB 6h max=$50 clouds=vast,runpod spot=no for="fine-tune"` and subcommands.

`parse` never raises: it returns a `ParsedCommand`, or a `GrammarError` that points at the word and shows a correct
example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.rules.grammar.commands import BY_NAME, SUBCOMMANDS, CommandShape, Subcommand
from bot.rules.grammar.compare_words import compares_work, work_to_compare
from bot.rules.grammar.job import Draft, joined, pair, secret_problem
from bot.rules.grammar.question_words import question, question_word
from bot.rules.grammar.readers import (
    VALUE_SEEN,
    ParsedCommand,
    Wrong,
    end,
    read_choice,
    read_cloud,
    read_delegate,
    read_done,
    read_end,
    read_id,
    read_key,
    read_logs,
    read_maybe_id,
    read_migrate,
    read_nothing,
    read_reason,
    read_secret,
    read_share,
    read_topic,
    read_transfer,
)
from bot.rules.grammar.sizing_words import chooses_model, sizing_question
from bot.rules.grammar.volume_words import read_volume
from bot.rules.jobs.facet_table import WORDS
from bot.rules.market.sort_key import read_sort
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, nearest, show
from bot.rules.values.private_keys import looks_private
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.secret_text import field_of, problem
from bot.rules.values.text import UnclosedQuote, WordToken, caret, clean, tokens
from ledger.kernel.secret_shapes import without_signatures
from providers.gpus.table import lookup

#: The right form of a job that needs a secret.
_SAFE_EXAMPLE = 'provision 1x4090 2h run="python train.py" secrets=HF_TOKEN'

__all__ = ["GrammarError", "ParsedCommand", "parse", "reference"]


@dataclass(frozen=True, slots=True)
class GrammarError:
    """Say what was wrong with which word of `line`, and show a correct example."""

    word: str
    position: int
    message: str
    example: str
    line: str
    #: Which of the words that came beside the line, from 1; 0 is the line.
    pair: int = 0
    code: ReplyCode = ReplyCode.BAD_WORD

    @property
    def caret(self) -> str:
        """Draw the line with carets under the word, for a fixed-width font."""
        return caret(self.line, self.position, len(self.word))


def parse(
    text: str, policy: Policy | None = None, more: Iterable[tuple[str, str]] = ()
) -> ParsedCommand | GrammarError:
    """Read what somebody typed after `/gpu`. Nothing typed is `help`.

    `more` are further words with their values, whatever is in them, such as a file or a REST body holds.
    """
    line, pairs = clean(text), tuple(more)
    if looks_private(line):  # The error does not repeat it: others may see an answer, and nobody may see a private key.
        message = "That is a private key: keep it to yourself and add the public one, which ends in .pub."
        return GrammarError("key", 0, message, BY_NAME["key"].example, "key add …")
    if secret := _secret_error(line, pairs):
        return secret
    parsed = _parsed(text, line, policy or Policy(), pairs)
    return _masked(parsed) if isinstance(parsed, GrammarError) else parsed


def _masked(error: GrammarError) -> GrammarError:
    """Mask the signatures of addresses in an error, before its line is cut to what is shown of it."""
    if without_signatures(error.line) == error.line:
        return error
    return replace(
        error,
        word=without_signatures(error.word),
        position=len(without_signatures(error.line[: error.position])),
        line=without_signatures(error.line),
    )


def _secret_error(line: str, pairs: Sequence[tuple[str, str]]) -> GrammarError | None:
    """Refuse words with a secret in them before anything stores or repeats them; None where there is none."""
    sub = BY_NAME["provision"]
    for place, (key, value) in enumerate(pairs, 1):
        if wrong := problem(field_of(key), value):
            return GrammarError(sub.name, 0, wrong, _SAFE_EXAMPLE, f"{sub.name} …", place, ReplyCode.SECRET_IN_TEXT)
    if line.lower().lstrip("-/").startswith("secret") or not (wrong := secret_problem(line, "The command")):
        return None  # The command about secrets has a sentence of its own about values.
    return GrammarError(sub.name, 0, wrong, _SAFE_EXAMPLE, f"{sub.name} …", 0, ReplyCode.SECRET_IN_TEXT)


def _parsed(text: str, line: str, policy: Policy, pairs: Sequence[tuple[str, str]]) -> ParsedCommand | GrammarError:
    sub = BY_NAME["provision"]
    try:
        words = tokens(line)
        if not words:
            return ParsedCommand("help")
        sub = _subcommand(words[0])
        added = [pair(key, clean(value), len(text) + place) for place, (key, value) in enumerate(pairs, 1)]
        return _READERS[sub.shape](sub, [*words[1:], *added], line, policy)
    except UnclosedQuote as error:
        if line.lower().lstrip("-/").startswith("secret"):
            return _without_line(f"{error!s}{VALUE_SEEN}", BY_NAME["secret"])
        return GrammarError(line[error.position :], error.position, str(error), sub.example, line)
    except Wrong as error:
        if sub.shape is CommandShape.SECRET:
            return _without_line(error.message, sub)
        place = error.token.position
        return GrammarError(
            error.token.raw, place, error.message, error.example or sub.example, line, max(0, place - len(text))
        )


def _without_line(message: str, sub: Subcommand) -> GrammarError:
    """Return an error about a line that may have a secret in it, and is repeated nowhere."""
    return GrammarError(sub.name, 0, message, sub.example, f"{sub.name} …")


def _subcommand(first: WordToken) -> Subcommand:
    word = first.value.lower().lstrip("-/")
    if word in BY_NAME:
        return BY_NAME[word]
    if re.sub(r"^\d+x", "", word) and lookup(re.sub(r"^\d+x", "", word)):
        raise Wrong(first, f"Begin with what to do: provision {show(first.value)}.")
    wrong, meant = f"{show(first.value)} is not a command.", nearest(word, BY_NAME)
    if meant:
        raise Wrong(first, f"Did you mean {meant}? {wrong}", BY_NAME[meant].example)
    raise Wrong(first, f"{wrong} There are {', '.join(sub.name for sub in SUBCOMMANDS)}.", "help")


# ── one reader per shape ─────────────────────────────────────────────────────────────────────────


def _read_more(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read an id, a time, and why: as `for="…"`, or as all the words that follow the time."""
    named = read_id(sub, words[:1], line, policy)
    draft = Draft(policy)
    for word in joined(words[1:]):
        is_reason = "hours" in draft.said and _is_prose(word, draft)
        said = pair("for", line[word.position :], word.position) if is_reason else word
        try:
            found = draft.look(said)
        except BadWord as error:
            raise Wrong(word, str(error)) from error
        if not found.keys() <= {"hours", "reason"} - draft.said.keys():
            raise Wrong(word, f'{sub.name} takes one time and one reason, as in 2h for="one more epoch".')
        draft.said.update(found)
        if is_reason:
            break
    if "hours" not in draft.said:
        raise Wrong(end(line), "Say how much more, such as 2h or 90m.")
    return replace(named, hours=draft.said["hours"], text=draft.said.get("reason", ""))


def _is_prose(word: WordToken, draft: Draft) -> bool:
    """Whether a word begins the reason: it is no time, and it sets no field with `=`."""
    if "=" in word.raw:
        return False
    try:
        return "hours" not in draft.look(word)
    except BadWord:
        return True


def _read_job(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    if not words:
        return ParsedCommand(sub.name)
    draft, sort = Draft(policy), None
    for word in joined(words):
        try:
            key, equals, value = word.value.partition("=")
            if sub.name == "inventory" and equals and key.lower().lstrip("-") == "sort":
                sort = read_sort(value)
            else:
                draft.read(word)
        except BadWord as error:
            raise Wrong(word, str(error)) from error
    try:
        draft.fill()
    except BadWord as error:
        raise Wrong(end(line), str(error)) from error
    for _, sentence in draft.missing(sub):
        raise Wrong(end(line), sentence)
    if sub.name == "plan" and chooses_model(draft.said):
        try:
            return ParsedCommand(sub.name, sizing=sizing_question(draft.said, draft.request(sub), policy))
        except BadWord as error:
            raise Wrong(end(line), str(error)) from error
    return ParsedCommand(sub.name, job=draft.request(sub), sort=sort)


def _read_question(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    if compares_work(words):
        try:
            return ParsedCommand(sub.name, job=work_to_compare(words, policy))
        except BadWord as error:
            raise Wrong(end(line), str(error), "compare model=7B tokens=2B") from error
    fields: dict[str, Any] = {}
    for word in words:
        try:
            found = question_word(word, policy)
        except BadWord as error:
            raise Wrong(word, str(error)) from error
        if not fields.keys().isdisjoint(found):
            raise Wrong(word, f"{show(word.raw)} repeats what was already said. Keep one of the two.")
        fields.update(found)
    try:
        return ParsedCommand(sub.name, question=question(fields))
    except BadWord as error:
        raise Wrong(words[-1], str(error)) from error


_READERS: Mapping[CommandShape, Callable[[Subcommand, list[WordToken], str, Policy], ParsedCommand]] = {
    CommandShape.JOB: _read_job,
    CommandShape.ID: read_id,
    CommandShape.MAYBE_ID: read_maybe_id,
    CommandShape.KEY: read_key,
    CommandShape.TOPIC: read_topic,
    CommandShape.CLOUD: read_cloud,
    CommandShape.QUESTION: _read_question,
    CommandShape.NOTHING: read_nothing,
    CommandShape.CHOICE: read_choice,
    CommandShape.MORE: _read_more,
    CommandShape.DONE: read_done,
    CommandShape.END: read_end,
    CommandShape.DELEGATE: read_delegate,
    CommandShape.LOGS: read_logs,
    CommandShape.SHARE: read_share,
    CommandShape.TRANSFER: read_transfer,
    CommandShape.REASON: read_reason,
    CommandShape.MIGRATE: read_migrate,
    CommandShape.VOLUME: read_volume,
    CommandShape.SECRET: read_secret,
}


def reference() -> str:
    """Write the grammar as Markdown tables, made from the tables above."""
    lines = ["| command | what it does | example |", "|---|---|---|"]
    lines += [f"| `/gpu {sub.usage}` | {sub.doc} | `/gpu {sub.example}` |" for sub in SUBCOMMANDS]
    lines += ["", "| word | value | meaning | example | also |", "|---|---|---|---|---|"]
    for word in WORDS:
        also = ", ".join(f"`{alias}=`" for alias in word.aliases)
        lines.append(f"| `{word.key}=` | {word.value} | {word.doc} | `{word.example}` | {also} |")
    return "\n".join(lines) + "\n"
