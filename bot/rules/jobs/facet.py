"""Describe a facet of a job: its words in the `/gpu` language, its keys in job files, and what is shown of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from providers.capabilities import Capabilities

#: Fields of `JobRequest` and of its GPU constraint, by their names.
Fields = dict[str, Any]

Text = Annotated[str, Field(max_length=1000)]
Number = Annotated[Decimal, Field(allow_inf_nan=False, max_digits=30)]
#: What YAML reads as a number may be a word of the language as well: 4090.
NumberOrText = Number | Text


class DocumentPart(BaseModel):
    """A part of a job document. It refuses keys that it does not have."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Word:
    """Describe one `key=value` of the language. `read` makes fields of the value, or raises `BadWord`."""

    key: str
    value: str
    doc: str
    example: str
    read: Callable[[str, Policy], Fields]
    aliases: tuple[str, ...] = ()
    #: Whether it narrows the market further than GPUs, price and clouds do. Slack's form has one field for all of them.
    narrows: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """Describe one key of job files and REST bodies.

    `word` is the word of the language that reads its value; None: the word with the key's own name, "": no word, and
    the value is read apart. `write` makes of a value `(place in the document, word, text)` for the language.
    """

    name: str
    type: Any
    description: str
    default: Any = None
    examples: Sequence[Any] | None = None
    word: str | None = None
    write: Callable[[Any], Iterable[tuple[str, str, str]]] | None = None

    def words(self, value: Any) -> Iterable[tuple[str, str, str]]:
        """Yield `(place in the document, word, text)` of a value; nothing where nothing was said."""
        if value is None or self.word == "":
            return ()
        if self.write is not None:
            return self.write(value)
        return [(self.name, self.word or self.name, plain(value))] if value not in ("", []) else ()


class Detail(NamedTuple):
    """One thing that approvers read of a job: our own words, and at most so many characters of what somebody typed."""

    label: str
    value: str = ""
    most: int = 80


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a job is checked against.

    `clouds` are those that rent machines here, with what each can do, and `named` those of them that the job names.
    `agent_runs` says whether the agent runs at one of these with the job's image, and `agent_reaches` whether machines
    can reach this service. `commands` are all that the job runs, and `shares_queue` whether they are a queue.
    """

    policy: Policy
    clouds: Mapping[str, Capabilities]
    named: tuple[str, ...]
    agent_runs: bool
    agent_reaches: bool
    commands: tuple[str, ...]
    shares_queue: bool
    model: str | None

    def without_agent(self, word: str) -> BoundsVerdict | None:
        """Say that a word needs the agent where it runs nowhere that the job may go; None where it runs."""
        if self.named and not self.agent_runs:
            where = f"which doesn't run at {', '.join(self.named)} with this job."
            return BoundsVerdict(ReplyCode.AGENT_MISSING, f"{word} needs GPU Shopper's agent, {where}")
        if not self.agent_reaches:
            until = "and no machine can run it until GPU_SHOPPER_NODE_URL is set."
            return BoundsVerdict(ReplyCode.AGENT_MISSING, f"{word} needs GPU Shopper's agent, {until}")
        return None


def _no_details(_job: Any) -> Iterable[Detail]:
    return ()


def _no_check(_job: Any, _facts: JobFacts) -> BoundsVerdict | None:
    return None


@dataclass(frozen=True, slots=True)
class JobFacet:
    """Describe a facet of a job. `facet_table.FACETS` lists them all."""

    #: The dataclass of its fields, which `JobRequest` inherits.
    fields: type
    #: Whether its fields are facts about the machine and its price, which may be shown to whoever is offered a session.
    are_facts: bool = False
    words: tuple[Word, ...] = ()
    keys: tuple[Key, ...] = ()
    #: Each checks, when all words are read, what they say together, or fills in what follows. Raises `BadWord`.
    complete: tuple[Callable[[Fields, Policy], Fields], ...] = ()
    #: What is wrong with it in a job from any source, also one that an earlier policy allowed; None for nothing.
    check: Callable[[Any, JobFacts], BoundsVerdict | None] = _no_check
    #: What approvers read of a job.
    details: Callable[[Any], Iterable[Detail]] = _no_details


def plain(value: Any) -> str:
    """Write a value as the language does: YAML reads yes and no as truth, numbers lose no digits, lists have commas."""
    if isinstance(value, list):
        return ",".join(map(plain, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def sets(field: str, read: Callable[[str], Any]) -> Callable[[str, Policy], Fields]:
    """Make a reader for a word that sets one field, whatever the policy says."""
    return lambda text, _policy: {field: read(text)}
