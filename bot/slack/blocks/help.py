"""Build the answer to `/gpu help` from the tables of the grammar, so that it matches what the parser accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bot.rules.grammar.commands import BY_NAME, SUBCOMMANDS, CommandShape, Subcommand
from bot.rules.grammar.job import listed_presets
from bot.rules.grammar.parser import GrammarError
from bot.rules.grammar.question_words import QUESTION_WORDS
from bot.rules.jobs.facet_table import WORD_OF, WORDS
from bot.rules.jobs.work_words import WORK_WORDS
from bot.rules.values.phrases import plural
from bot.slack.blocks.elements import Message, code, context, header, safe, section

#: Subject → its subcommands, in the order in which people need them; the panels of the command line are the same.
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "Market": ("inventory", "plan", "compare", "profile"),
    "Requests": (
        "provision",
        "again",
        "list",
        "history",
        "status",
        "share",
        "unshare",
        "cancel",
        "revoke",
        "why",
        "break-glass",
        "delegate",
    ),
    "Sessions": (
        "logs",
        "extend",
        "migrate",
        "volume",
        "done",
        "stop",
        "start",
        "restart",
        "terminate",
        "transfer",
        "key",
        "secret",
    ),
    "Money": ("costs", "budget"),
    "More": ("audit", "help"),
}

#: How many presets of the policy the help lists, and how much of the words of each.
_PRESETS: Final = 10
_PRESET_CHARACTERS: Final = 150


def overview(command: str, topic: str = "", presets: Mapping[str, str] | None = None) -> Message:
    """List every subcommand by subject, or describe one of them in detail; `presets` are the policy's."""
    found = next((sub for sub in SUBCOMMANDS if sub.name == topic), None)
    if found is not None:
        return _one(found, command, _presets(presets or {}, command) if found.name == "provision" else [])
    groups = ["\n".join([f"*{subject}*", *_usages(names, command)]) for subject, names in SUBJECTS.items()]
    example = f"For example {code(f'{command} {SUBCOMMANDS[0].example}')}"
    text = f"GPU Shopper: {' '.join(groups)} {example}"
    hint = f"{code(f'{command} help provision')} lists every word."
    return Message(text, (header("GPU Shopper"), *map(section, groups), section(example), context(hint)))


def _usages(names: Iterable[str], command: str) -> list[str]:
    return [f"{code(f'{command} {BY_NAME[name].usage}')} {BY_NAME[name].doc}" for name in names]


def _presets(presets: Mapping[str, str], command: str) -> list[str]:
    """List the first presets of the policy as what a person types, each with the words that it stands for."""
    shown = [
        f"{code(f'{command} provision preset={name}')} {safe(words, _PRESET_CHARACTERS)}"
        for name, words in listed_presets(presets)[:_PRESETS]
    ]
    rest = len(presets) - len(shown)
    return shown + ([f"{plural(rest, 'more preset')} in the form: {code(f'{command} provision')}"] if rest else [])


def _one(sub: Subcommand, command: str, presets: Sequence[str]) -> Message:
    lines = [f"{code(f'{command} {sub.usage}')} {sub.doc}", f"For example {code(f'{command} {sub.example}')}"]
    blocks = [section("\n".join(lines))]
    words = [f"{code(example)} {doc}" for example, doc in _words(sub)]
    if presets:
        lines += ["*Presets of your team*", *presets]
        blocks.append(section("\n".join(lines[2:])))
    half = (len(words) + 1) // 2
    blocks += [section("\n".join(part)) for part in (words[:half], words[half:]) if part]
    lines += words
    return Message(" ".join(lines), tuple(blocks))


def _words(sub: Subcommand) -> list[tuple[str, str]]:
    """List (example, meaning) of every word that a command takes, where it takes words of its own."""
    if sub.shape is CommandShape.QUESTION:
        return [(word.example, word.doc) for word in QUESTION_WORDS]
    job = [(word.example, word.doc) for word in WORDS] if sub.needs_hours else []
    work = [(word.example, word.doc) for word in WORK_WORDS if word.key not in WORD_OF]
    return job if sub.name != "plan" else work


def grammar_error(error: GrammarError, command: str) -> Message:
    """Show what was wrong, the line with carets below the word, and a correct example."""
    # A fenced block shows the carets in a fixed-width font; `caret` has no backtick in it that could end the fence.
    shown = error.caret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    message = safe(error.message, 500)
    example = f"For example {code(f'{command} {error.example}', 300)}"
    text = f"{message} {example}"
    return Message(text, (section(f":thinking_face: {message}\n```{shown}```\n{example}"),))
