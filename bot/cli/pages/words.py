"""Generate docs/grammar.md and docs/ids.md."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.grammar.commands import SUBCOMMANDS
from bot.rules.grammar.question_words import QUESTION_WORDS
from bot.rules.jobs.facet import Word
from bot.rules.jobs.facet_table import WORD_OF, WORDS
from bot.rules.jobs.work_words import WORK_WORDS, WorkWord
from bot.rules.values.labels import COUNTER_LENGTH, DEPLOYMENT_LENGTH, LABEL_LENGTH, MAC_LENGTH
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.ids import BASE32, ID_LENGTH, base32

#: A fixed moment, so that the page is the same each time.
EXAMPLE_AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
PREFIXES = (
    ("req", "request"),
    ("quo", "quote"),
    ("opt", "option of a quote"),
    ("apr", "approval"),
    ("adv", "approval in advance"),
    ("grt", "grant"),
    ("ses", "session"),
    ("ins", "instance"),
    ("str", "orphan"),
    ("led", "ledger entry"),
    ("evt", "event of the journal"),
    ("ntf", "notification"),
    ("whk", "webhook"),
    ("dlv", "delivery of a webhook"),
)


def grammar() -> str:
    """Describe the `/gpu` grammar."""
    commands = [
        (code(f"/gpu {sub.usage}"), _with_aliases(sub.doc, sub.aliases), code(f"/gpu {sub.example}"))
        for sub in SUBCOMMANDS
    ]
    words = map(_row, WORDS)
    work = (_row(word) for word in WORK_WORDS if word.key not in WORD_OF)
    question = map(_row, QUESTION_WORDS)
    return whole_page(
        "The /gpu language",
        "What you can type in Slack, and give to `gpu-shopper provision`. The words can come in any order. Put text "
        "with spaces in quotes; in a shell, put words with `$` in single quotes, too. If the bot doesn't know a word, "
        "it shows where the word is and a right one. It then requests nothing. The "
        "[requester's guide](guides/requester.md) shows the ones that you need first.",
        "## Commands",
        table(("command", "what it does", "example"), commands),
        "## Words of a job",
        "TIME is `6h`, `90m` or `2d`. MONEY is `$50` or `50`. SIZE is `40GB` or `1TB`. SHARE is `98%` or `0.98`. "
        "NUMBER is `7B`, `300M` or `20k`. Usual values need no key: `4xA100 6h $50 US`.",
        table(("word", "what it says", "example"), words),
        "## Words of a run",
        "They describe the work, for `plan` and for `provision` without hours, together with `model=` and `tokens=`. "
        "If you leave one out, the bot assumes a value and shows it, or says what it needs to know.",
        table(("word", "what it says", "example"), work),
        "## Words of a comparison",
        table(("word", "what it says", "example"), question),
    )


def _row(word: Word | WorkWord) -> tuple[str, str, str]:
    return code(f"{word.key}={word.value}"), _with_aliases(word.doc, word.aliases), code(word.example)


def _with_aliases(doc: str, aliases: Iterable[str]) -> str:
    also = ", ".join(code(alias) for alias in aliases)
    return f"{doc} Also: {also}." if also else doc


def ids() -> str:
    """Describe the ids."""
    milliseconds = int(EXAMPLE_AT.timestamp() * 1000)
    sample = base32((milliseconds << 32) | 0x5EEDCAFE, ID_LENGTH)
    label = f"prd1-{sample}-00-{base32(0x2A5EEDCAFE, MAC_LENGTH)}"
    rows = [(code(f"{prefix}_…"), what) for prefix, what in PREFIXES]
    actors = [
        (code(Actor(ActorKind.SLACK, "U012AB3CD", "T012AB3CD").ref), "a person in Slack: team and user"),
        (code(Actor(ActorKind.OPERATOR, "ada").ref), "an operator at the command line: the system's user name"),
        (code(Actor(ActorKind.CONSUMER, "atlas").ref), "a program: the name that its API keys have"),
        (code(Actor(ActorKind.AGENT, "coder").ref), "an AI agent: like a program, and never auto-approved"),
        (code(Actor(ActorKind.SYSTEM, "ticker").ref), "the service itself"),
    ]
    return whole_page(
        "Ids",
        "You can type the last four characters of an id, or more, as long as no other id ends with them. A rental has "
        "one short id from its card to its end: the last six characters of its request's id. The id of its session, "
        "which programs store, names it as well.",
        f"A whole id is a prefix and {ID_LENGTH} characters, such as `req_{sample}`. Ids sort by time. For programs: "
        f"the characters are `{BASE32}` (base32 without i, l, o and u), 48 bits of milliseconds and then 32 random "
        "bits.",
        table(("id", "of"), rows),
        "## Offers",
        "`<cloud>:<the cloud's own name of the offer>`, such as `vast:30406190`.",
        "## Names of instances",
        f"The bot names an instance `<name for people>-<label>`. The label is the last {LABEL_LENGTH} characters: "
        f"deployment ({DEPLOYMENT_LENGTH}), request ({ID_LENGTH}), number of the instance ({COUNTER_LENGTH}), "
        f"and a check ({MAC_LENGTH}) that only somebody with the label key can make. "
        "Without a valid label the bot ends nothing.",
        f"```\ngpu-2xa100-80gb-{label}\n```",
        "## Who acts",
        table(("reference", "who"), actors),
    )
