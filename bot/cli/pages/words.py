"""Generate docs/grammar.md and docs/ids.md."""

from __future__ import annotations

from datetime import UTC, datetime

from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.grammar.commands import SUBCOMMANDS
from bot.rules.grammar.job_words import KEYS, WORDS
from bot.rules.grammar.run_words import QUESTION_WORDS
from bot.rules.grammar.workload_words import WORK_WORDS
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
        (code(f"/gpu {sub.usage}"), sub.doc, code(f"/gpu {sub.example}"), ", ".join(sub.aliases)) for sub in SUBCOMMANDS
    ]
    words = [(code(word.value), word.doc, code(word.example), ", ".join(word.aliases)) for word in WORDS]
    work = [
        (code(f"{word.key}={word.value}"), word.doc, code(word.example), ", ".join(word.aliases))
        for word in WORK_WORDS
        if word.key not in KEYS
    ]
    question = [(code(f"{word.key}={word.value}"), word.doc, code(word.example), "") for word in QUESTION_WORDS]
    return whole_page(
        "The /gpu language",
        "Words may come in any order; text with spaces goes in quotes. A word that is not understood is answered with "
        "the place of the word and a correct example, and nothing is requested.",
        "## Commands",
        table(("command", "what it does", "example", "also"), commands),
        "## Words of a job",
        table(("word", "what it says", "example", "also"), words),
        "## Words of a run",
        "They say what runs, for `plan` and for `provision` without hours; `model=` and `tokens=` belong to them. What "
        "is not said is assumed and shown, or the answer says what cannot be known.",
        table(("word", "what it says", "example", "also"), work),
        "## Words of a comparison",
        table(("word", "what it says", "example", "also"), question),
    )


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
        f"An id is a prefix, an underscore and {ID_LENGTH} characters of `{BASE32}` (base32 without i, l, o and u): "
        f"48 bits of milliseconds, then 32 random bits. So ids sort by time. Example: `req_{sample}`. People may type "
        "any ending of at least four characters that is unique.",
        table(("id", "of"), rows),
        "## Offers",
        "`<cloud>:<the cloud's own name of the offer>`, such as `vast:30406190`.",
        "## Names of instances",
        f"`<human part>-<machine label>`. The label has {LABEL_LENGTH} characters and is read from the right end: "
        f"deployment ({DEPLOYMENT_LENGTH}), request ({ID_LENGTH}, without its prefix), number of the instance "
        f"({COUNTER_LENGTH}), and a keyed check ({MAC_LENGTH}). Only the label key can make that check.",
        f"```\ngpu-2xa100-80gb-{label}\n```",
        "## Who acts",
        table(("reference", "who"), actors),
    )
