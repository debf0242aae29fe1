"""The `/gpu` language: `4xA100-80GB 6h max=$50 clouds=vast,runpod spot=no for="fine-tune"` and its subcommands.

`parse` never raises: it answers a `Command`, or a `GrammarError` that points at the word and shows a correct example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bot.rules.grammar.commands import BY_NAME, SUBCOMMANDS, Shape, Subcommand
from bot.rules.grammar.job_args import JobArgs
from bot.rules.grammar.job_words import (
    BRANDS,
    DURATION,
    FILLERS,
    KEYS,
    SPOT_WORDS,
    WORDS,
    BadWord,
    Fields,
    cloud_words,
    near,
    read_clouds,
    read_gpus,
    show,
    unknown_gpu,
)
from bot.rules.grammar.readers import (
    Command,
    Wrong,
    end,
    read_choice,
    read_cloud,
    read_delegate,
    read_done,
    read_end,
    read_id,
    read_key,
    read_nothing,
    read_reason,
    read_topic,
)
from bot.rules.grammar.run_words import SHARED, question, question_word, run_word, unsaid, work_word
from bot.rules.grammar.workload_words import WORK_KEYS
from bot.rules.policy.policy import Policy
from bot.rules.values.private_keys import looks_private
from bot.rules.values.text import Token, UnclosedQuote, caret, clean, tokens
from providers.gpus.table import lookup

__all__ = ["Command", "GrammarError", "parse", "reference", "said"]


@dataclass(frozen=True, slots=True)
class GrammarError:
    """What was wrong with which word of `line`, and a correct example."""

    word: str
    position: int
    message: str
    example: str
    line: str

    code = "bad_word"

    @property
    def caret(self) -> str:
        """The line with carets under the word, for a fixed-width font."""
        return caret(self.line, self.position, len(self.word))

    @property
    def sentence(self) -> str:
        """What was wrong and what a right one looks like, for doors that show one line."""
        return f"{self.message} For example: {self.example}"


_COUNTED = re.compile(r"(-?\d+(?:-\d+)?\s*x)\s*(.+)", re.IGNORECASE)
_KEYED = re.compile(r"-{0,2}([A-Za-z][\w-]*?)(=|>=|<=)(.*)", re.DOTALL)
_NUMBER = re.compile(r"\d+")
_UNITS = re.compile(r"h|hrs?|hours?|m|mins?|minutes?|d|days?|gb|g|x.*", re.IGNORECASE)


def parse(text: str, policy: Policy | None = None, more: Iterable[tuple[str, str]] = ()) -> Command | GrammarError:
    """Read what somebody typed after `/gpu`. Nothing typed is `help`.

    `more` are further words with their values, as in `said`; an error in the nth is at the place `len(text) + n`.
    """
    line = clean(text)
    if looks_private(line):  # It is not repeated: an answer may be seen by others, a private key by nobody.
        message = "That is a private key: keep it to yourself and add the public one, which ends in .pub."
        return GrammarError("key", 0, message, BY_NAME["key"].example, "key add …")
    sub = BY_NAME["provision"]
    try:
        words = tokens(line)
        if not words:
            return Command("help")
        sub = _subcommand(words[0])
        added = [_pair(key, clean(value), len(text) + place) for place, (key, value) in enumerate(more, 1)]
        return _READERS[sub.shape](sub, [*words[1:], *added], line, policy or Policy())
    except UnclosedQuote as error:
        return GrammarError(line[error.position :], error.position, "This quote is not closed.", sub.example, line)
    except Wrong as error:
        return GrammarError(error.token.raw, error.token.position, error.message, sub.example, line)


def said(name: str, pairs: Iterable[tuple[str, str]], policy: Policy) -> Command | GrammarError:
    """The same language from pairs of word and value, such as a file or a REST body holds, whatever is in the values.

    The position of an error is the number of the pair, from 1; 0 is the whole.
    """
    sub = BY_NAME[name]
    words = [_pair(key, clean(value), place) for place, (key, value) in enumerate(pairs, 1)]
    try:
        return _READERS[sub.shape](sub, words, "", policy)
    except Wrong as error:
        return GrammarError(error.token.raw, error.token.position, error.message, sub.example, "")


def _pair(key: str, value: str, place: int) -> Token:
    return Token(f"{key}={value}", f"{key}={value}", place, quoted=True)


def _subcommand(first: Token) -> Subcommand:
    word = first.value.lower().lstrip("-/")
    if word in BY_NAME:
        return BY_NAME[word]
    if re.sub(r"^\d+x", "", word) and lookup(re.sub(r"^\d+x", "", word)):
        raise Wrong(first, f"Begin with what to do: provision {show(first.value)}.")
    known = ", ".join(sub.name for sub in SUBCOMMANDS)
    raise Wrong(first, f"{show(first.value)} is not a command; there are {known}.{near(word, BY_NAME)}")


# ── one reader per shape ─────────────────────────────────────────────────────────────────────────


def _read_more(sub: Subcommand, words: list[Token], line: str, policy: Policy) -> Command:
    named = read_id(sub, words[:1], line, policy)
    fields: Fields = {}
    for word in _joined(words[1:]):
        try:
            found, _ = _word(word, "", fields, policy)
        except BadWord as error:
            raise Wrong(word, str(error)) from error
        if not found.keys() <= {"hours", "reason"} or not fields.keys().isdisjoint(found):
            raise Wrong(word, f'{sub.name} takes one time and one reason, as in 2h for="one more epoch".')
        fields.update(found)
    if "hours" not in fields:
        raise Wrong(end(line), "Say how much more, such as 2h or 90m.")
    return replace(named, hours=fields["hours"], text=fields.get("reason", ""))


def _read_job(sub: Subcommand, words: list[Token], line: str, policy: Policy) -> Command:
    if not words:
        return Command(sub.name)
    fields: Fields = {}
    gpu_text = ""
    for word in _joined(words):
        try:
            found, gpu_text = _word(word, gpu_text, fields, policy)
        except BadWord as error:
            raise Wrong(word, str(error)) from error
        for name, value in found.items():
            if name in fields and name not in ("gpu_names", "work"):
                raise Wrong(word, f"{show(word.raw)} says again what was already said; keep one of the two.")
            fields[name] = value
    args = JobArgs(**fields)
    # A time that a person fixed is what is rented, whatever the work is.
    if args.work and sub.name != "plan" and (args.hours is not None or not sub.needs_hours):
        args = replace(args, work=())
    if args.work and "count_min" not in fields:
        # Whoever describes the work leaves the number of GPUs to the plan.
        args = replace(args, count_max=policy.max_gpus)
    _complete(sub, args, line)
    return Command(sub.name, args=args)


def _complete(sub: Subcommand, args: JobArgs, line: str) -> None:
    if sub.name == "plan" and not args.work and args.hours is None:
        raise Wrong(end(line), "Say what runs, such as model=7B tokens=2B, or for how long, such as 6h.")
    if not sub.needs_hours:
        return
    if not args.work and not (args.gpu_names or args.memory_gb_min or args.memory_gb_max or args.offer_id):
        raise Wrong(end(line), "Say which GPU: a name such as 4090, or memory=40GB+.")
    missing = unsaid(args.work)
    if args.hours is None and (missing or not args.work):
        raise Wrong(end(line), f"Say for how long, such as 6h or 90m. {missing}".strip())


def _read_question(sub: Subcommand, words: list[Token], _line: str, policy: Policy) -> Command:
    fields: Fields = {}
    for word in words:
        try:
            found = question_word(word, policy)
        except BadWord as error:
            raise Wrong(word, str(error)) from error
        if not fields.keys().isdisjoint(found):
            raise Wrong(word, f"{show(word.raw)} says again what was already said; keep one of the two.")
        fields.update(found)
    try:
        return Command(sub.name, question=question(fields))
    except BadWord as error:
        raise Wrong(words[-1], str(error)) from error


_READERS: Mapping[Shape, Callable[[Subcommand, list[Token], str, Policy], Command]] = {
    Shape.JOB: _read_job,
    Shape.ID: read_id,
    Shape.KEY: read_key,
    Shape.TOPIC: read_topic,
    Shape.CLOUD: read_cloud,
    Shape.QUESTION: _read_question,
    Shape.NOTHING: read_nothing,
    Shape.CHOICE: read_choice,
    Shape.MORE: _read_more,
    Shape.DONE: read_done,
    Shape.END: read_end,
    Shape.DELEGATE: read_delegate,
    Shape.REASON: read_reason,
}


def _joined(words: list[Token]) -> Iterator[Token]:
    """The words with `6 hours` and `2 x` put together, then `4xA100` taken apart into `4x` and `A100`."""
    place = 0
    while place < len(words):
        word = words[place]
        unit = words[place + 1] if place + 1 < len(words) else end("")
        place += 1
        if _NUMBER.fullmatch(word.raw) and not lookup(word.raw) and _UNITS.fullmatch(unit.raw):
            gap = " " * (unit.position - word.position - len(word.raw))
            word = Token(word.value + unit.value, word.raw + gap + unit.raw, word.position)
            place += 1
        counted = None if word.quoted else _COUNTED.fullmatch(word.raw)
        if counted is None:
            yield word
        else:
            yield Token(counted[1], counted[1], word.position)
            yield Token(counted[2], counted[2], word.position + counted.start(2))


def _word(word: Token, gpu_text: str, fields: Fields, policy: Policy) -> tuple[Fields, str]:
    """What one word sets, and the GPU words so far, since `H100 SXM` are two words for one GPU."""
    keyed = _KEYED.fullmatch(word.value)
    if keyed is None:
        return _bare(word, gpu_text, fields, policy)
    key, operator, value = keyed[1].lower().replace("_", "-"), keyed[2], keyed[3].strip()
    found = KEYS.get(key) or KEYS.get(key.replace("-", "_"))
    if found is None and operator == "=" and run_word(key):
        return {"work": work_word(key, value, fields.get("work", ()))}, gpu_text
    if found is None:
        known = ", ".join(each.key for each in WORDS)
        raise BadWord(
            f"{show(keyed[1])} is not a word of this language; there are {known}.{near(key, (*KEYS, *WORK_KEYS))}"
        )
    if not value:
        raise BadWord(f"{found.key}= needs a value; write {found.example}.")
    if operator != "=" and found.key == "memory":
        value = operator + value
    elif operator != "=":
        raise BadWord(f"{operator} works with memory only; write {found.example}.")
    read = found.read(value, policy)
    if found.key in SHARED:
        read = {**read, "work": work_word(found.key, value, fields.get("work", ()))}
    return read, gpu_text


def _bare(word: Token, gpu_text: str, fields: Fields, policy: Policy) -> tuple[Fields, str]:
    text = word.value
    lowered = text.lower()
    if word.quoted and " " in text:
        return KEYS["for"].read(text, policy), gpu_text
    for pattern, key in _BARE:
        if pattern.fullmatch(lowered):
            return KEYS[key].read(lowered.strip("x ") if key == "count" else text, policy), gpu_text
    if lowered in ("spot", "interruptible", "on-demand", "ondemand"):
        return {"spot": SPOT_WORDS[lowered]}, gpu_text
    clouds = cloud_words()
    if all(part in clouds for part in lowered.split(",")):
        return read_clouds(text, policy), gpu_text
    together = lookup(f"{gpu_text} {text}") if gpu_text else ()
    if together:
        others = [name for name in fields.get("gpu_names", ()) if name not in lookup(gpu_text)]
        return {"gpu_names": tuple(dict.fromkeys((*others, *together)))}, f"{gpu_text} {text}"
    if lowered in BRANDS:
        return {}, text if lookup(gpu_text) else f"{gpu_text} {text}".strip()
    if lowered in FILLERS:
        return {}, gpu_text
    if all(lookup(part) for part in text.split(",")):
        names = (*fields.get("gpu_names", ()), *read_gpus(text, policy)["gpu_names"])
        return {"gpu_names": tuple(dict.fromkeys(names))}, text
    raise BadWord(_unknown(text))


#: What a bare word looks like → the key that reads it.
_BARE = tuple(
    (re.compile(pattern), key)
    for pattern, key in (
        (DURATION, "hours"),
        (r"-?\$.*/h(?:r|our)?", "price"),
        (r"-?\$.*|.*\d(?:usd|\$)", "max"),
        (r"\d{1,4}(?:gb|g)\+?|\d{1,4}(?:gb|g)?-\d{1,4}gb?", "memory"),
        (r"-?\d+(?:-\d+)?\s*x|x\d+", "count"),
        (r"[a-z]+:\S+", "offer"),
    )
)


def _unknown(text: str) -> str:
    lowered = text.lower()
    if lowered in KEYS:
        return f"{show(text)} needs a value; write {KEYS[lowered].example}."
    if re.fullmatch(r"-?\d{1,3}|-?\d+\.\d+", text):
        return f"{show(text)} could be anything; write GPUs as 4xA100, hours as 6h and money as $50."
    if re.search(r"\d", text):
        return unknown_gpu(text)
    others = get_close_matches(lowered[:40], (*KEYS, *cloud_words(), *SPOT_WORDS), n=1)
    hint = f" Did you mean {others[0]}?" if others else ' A reason is written as for="fine-tune".'
    return f"{show(text)} is not understood.{hint}"


def reference() -> str:
    """The grammar as Markdown tables, made from the tables above."""
    lines = ["| command | what it does | example |", "|---|---|---|"]
    lines += [f"| `/gpu {sub.usage}` | {sub.doc} | `/gpu {sub.example}` |" for sub in SUBCOMMANDS]
    lines += ["", "| word | value | meaning | example | also |", "|---|---|---|---|---|"]
    for word in WORDS:
        also = ", ".join(f"`{alias}=`" for alias in word.aliases)
        lines.append(f"| `{word.key}=` | {word.value} | {word.doc} | `{word.example}` | {also} |")
    return "\n".join(lines) + "\n"
