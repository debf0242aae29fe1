"""Read the commands that take a few plain words: nothing, an id, a choice, a key, a topic, a cloud."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from bot.rules.access.scopes import BadHolder, known_person, person
from bot.rules.grammar.commands import BY_NAME, DONE_WORDS, Subcommand
from bot.rules.jobs.facets.limits import read_clouds
from bot.rules.jobs.job import JobRequest
from bot.rules.market.sizing_question import SizingQuestion
from bot.rules.market.sort_key import SortKey
from bot.rules.plans.comparison import ComparisonQuestion
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, near, show
from bot.rules.values.secret_names import name_problem
from bot.rules.values.text import WordToken
from ledger.kernel.actor import Actor
from providers import cloud_names

#: Said where a value may have been typed behind a name.
VALUE_SEEN = " If you typed a value here, Slack has it now: nothing was stored, so revoke it and make a new one."


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """Hold a command that was read. `job` is None for a job command without words, which opens the form.

    `target` is the id of status, terminate, extend, done and cancel, the topic of help, or the cloud of profile;
    `action` and `text` belong to `key`, `question` to `compare`; `action` is the view of `costs`. Of `extend`, `hours`
    is how much more and `text` why; of `done`, `action` is `success` or `failed` and `text` `destroy`, `preserve` or
    empty; of `terminate`, `action` is `now` to skip the confirmation. Of `delegate`, `action` is `set`, `list` or
    `off`, `target` a person's reference and `day` the last day. Of `inventory`, `sort` is what comes first;
    of a `plan` that chooses the model, `sizing` stands in place of `job`; a `compare` of work has a `job`.
    """

    name: str
    job: JobRequest | None = None
    target: str = ""
    action: str = ""
    text: str = ""
    question: ComparisonQuestion | None = None
    sizing: SizingQuestion | None = None
    hours: Decimal | None = None
    day: date | None = None
    sort: SortKey | None = None


class Wrong(Exception):
    """Carry a word and a sentence up to `parse`; `example` is a right line where the command is not known yet."""

    def __init__(self, token: WordToken, message: str, example: str = "") -> None:
        super().__init__(message)
        self.token = token
        self.message = message
        self.example = example


def end(line: str) -> WordToken:
    """Return a place after the last word, for what is missing."""
    return WordToken("", "", len(line))


def read_nothing(sub: Subcommand, words: list[WordToken], _line: str, _policy: Policy) -> ParsedCommand:
    """Read a command alone."""
    if words:
        raise Wrong(words[0], f"{sub.name} takes no words after it.")
    return ParsedCommand(sub.name)


def read_id(sub: Subcommand, words: list[WordToken], line: str, _policy: Policy) -> ParsedCommand:
    """Read a command and one id."""
    if not words:
        raise Wrong(end(line), f"{sub.name} needs the id that a list or a message shows.")
    target = words[0].value.strip("`#")
    if not re.fullmatch(r"[A-Za-z0-9][\w.:-]{0,63}", target, re.ASCII):
        raise Wrong(words[0], f"{show(words[0].value)} is not an id; a list or a message shows it.")
    if len(words) > 1:
        raise Wrong(words[1], f"{sub.name} takes one id and nothing after it.")
    return ParsedCommand(sub.name, target=target)


def read_logs(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read an id, and which log after it; the job's where nothing follows."""
    named = read_id(sub, words[:1], line, policy)
    if len(words) > 2:
        raise Wrong(words[2], f"{sub.name} takes one id and one of {', '.join(sub.choices)}.")
    source = words[1].value.lower() if words[1:] else sub.choices[0]
    if source not in sub.choices:
        hint = near(source, sub.choices)
        raise Wrong(words[1], f"{show(source)} is no log; {sub.name} shows {', '.join(sub.choices)}.{hint}")
    return replace(named, action=str(source))


def read_maybe_id(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read a command and at most one id."""
    return read_id(sub, words, line, policy) if words else ParsedCommand(sub.name)


def read_done(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read an id, how the work went, and what becomes of the disk: `text` is empty where no word says it."""
    named = read_id(sub, words[:1], line, policy)
    found: dict[str, str] = {}
    for word in words[1:]:
        kind, value = DONE_WORDS.get(word.value.lower(), ("", ""))
        if not kind or kind in found:
            hint = "" if kind else near(word.value, DONE_WORDS)
            raise Wrong(word, f"{sub.name} takes success or failed, and destroy or preserve, after the id.{hint}")
        found[kind] = value
    return replace(named, action=found.get("action", "success"), text=found.get("text", ""))


def read_end(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read an id, and whether to end it without a confirmation."""
    if len(words) > 1 and words[1].value.lower().lstrip("-") not in ("now", "yes"):
        hint = near(words[1].value, ("now", "yes"))
        raise Wrong(words[1], f"{sub.name} takes one id, and now after it to be asked nothing.{hint}")
    if len(words) > 2:
        raise Wrong(words[2], f"{sub.name} takes one id, and now after it to be asked nothing.")
    return replace(read_id(sub, words[:1], line, policy), action="now" if words[1:] else "")


def read_migrate(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read an id, and where its run moves: an offer, a cloud, `cheaper`, or nothing for whatever fits."""
    named = read_id(sub, words[:1], line, policy)
    rest = words[2:] if words[1:] and words[1].value.lower() == "to" else words[1:]
    if words[1:] and not rest:
        raise Wrong(end(line), f"Say where to, as in {sub.example}; or leave `to` out.")
    if len(rest) > 1:
        raise Wrong(rest[1], f"{sub.name} takes one id, and one offer, one cloud or cheaper.")
    to = rest[0].value if rest else ""
    return replace(named, text=to if ":" in to else to.lower())


def read_key(sub: Subcommand, words: list[WordToken], line: str, _policy: Policy) -> ParsedCommand:
    """Read what to do with the public key, and the key."""
    if not words:
        raise Wrong(end(line), "Say what to do with the key: add, list or remove.")
    action = words[0].value.lower()
    if action not in (actions := ("add", "list", "remove")):
        said = f"{show(words[0].value)} cannot be done with a key; there are add, list and remove."
        raise Wrong(words[0], f"{said}{near(action, actions)}")
    rest = line[words[1].position :] if len(words) > 1 else ""
    if action == "add" and not rest:
        raise Wrong(end(line), "The public key is missing; it is the one line in a file that ends in .pub.")
    if action == "list" and rest:
        raise Wrong(words[1], "key list takes no words after it.")
    return ParsedCommand(sub.name, action=action, text=rest.strip("`"))


def read_secret(sub: Subcommand, words: list[WordToken], line: str, _policy: Policy) -> ParsedCommand:
    """Read what to do with a secret, and its name; never a value. No error may repeat the line."""
    action = words[0].value.lower() if words else "list"
    action = {"set": "add", "remove": "delete"}.get(action, action)
    if action not in ("add", "list", "delete"):
        raise Wrong(end(line), "Say what to do with a secret: add, list or delete. A form asks for its value.")
    if action == "list":
        if len(words) > 1:
            raise Wrong(end(line), "secret list takes no words after it.")
        return ParsedCommand(sub.name, action=action)
    if len(words) < 2:
        raise Wrong(end(line), f"Name the secret, as in secret {action} HF_TOKEN.")
    if wrong := name_problem(words[1].value):
        raise Wrong(end(line), f"{wrong}{VALUE_SEEN if len(words) > 2 else ''}")
    if len(words) > 2:
        takes = "A form asks for the value." if action == "add" else "secret delete takes one name."
        raise Wrong(end(line), f"{takes}{VALUE_SEEN}")
    return ParsedCommand(sub.name, action=action, target=words[1].value)


def read_topic(sub: Subcommand, words: list[WordToken], _line: str, _policy: Policy) -> ParsedCommand:
    """Read at most the name of one command."""
    topic = words[0].value.lower() if words else ""
    if topic and topic not in BY_NAME:
        raise Wrong(words[0], f"There is no help on {show(topic)}.{near(topic, BY_NAME)}")
    return ParsedCommand(sub.name, target=BY_NAME[topic].name if topic else "")


def read_cloud(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read the name of one cloud."""
    if len(words) != 1:
        raise Wrong(
            words[1] if words else end(line), f"{sub.name} takes one cloud; there are {', '.join(cloud_names.names())}."
        )
    try:
        (cloud,) = read_clouds(words[0].value.rstrip(","), policy)["candidates"]
    except BadWord as error:
        raise Wrong(words[0], str(error)) from error
    except ValueError as error:
        raise Wrong(words[0], f"{sub.name} takes one cloud at a time.") from error
    return ParsedCommand(sub.name, target=cloud)


def read_choice(sub: Subcommand, words: list[WordToken], _line: str, _policy: Policy) -> ParsedCommand:
    """Read at most one of the words that the command knows; the first of them when nothing is said."""
    if len(words) > 1:
        raise Wrong(words[1], f"{sub.name} takes one word after it.")
    action = words[0].value.lower() if words else sub.choices[0]
    if action not in sub.choices:
        said = f"{show(words[0].value)} is not one of {', '.join(sub.choices)}.{near(action, sub.choices)}"
        raise Wrong(words[0], said)
    return ParsedCommand(sub.name, action=action)


_MENTION = re.compile(r"<@([UW][A-Z0-9]{1,20})(?:\|[^>]*)?>")


def read_delegate(sub: Subcommand, words: list[WordToken], line: str, _policy: Policy) -> ParsedCommand:
    """Read who is to be the delegate, and through which day; or `list`, or `off`."""
    action = words[0].value.lower() if words else "list"
    if action in ("list", "off"):
        if len(words) > 1:
            raise Wrong(words[1], f"{sub.name} {action} takes no words after it.")
        return ParsedCommand(sub.name, action=action)
    mention = _MENTION.fullmatch(words[0].value)
    try:
        who = person(mention[1] if mention else words[0].value)
    except BadHolder as error:
        said = f"{show(words[0].value)} is nobody; mention the person, as in @dave, or write operator:ada."
        raise Wrong(words[0], f"{said}{near(action, ('list', 'off'))}") from error
    rest = [word for word in words[1:] if word.value.lower() != "until"]
    if not rest:
        raise Wrong(end(line), "Say through which day, such as until 2026-12-01.")
    if len(rest) > 1:
        raise Wrong(rest[1], f"{sub.name} takes one person and one day.")
    try:
        day = date.fromisoformat(rest[0].value)
    except ValueError as error:
        raise Wrong(rest[0], f"{show(rest[0].value)} is not a day; write it as 2026-12-01.") from error
    return ParsedCommand(sub.name, action="set", target=who.ref, day=day)


def read_share(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read an id, a person, and `off` to share it with them no longer."""
    named = read_id(sub, words[:1], line, policy)
    if len(words) < 2:
        raise Wrong(end(line), f"Say with whom, as in {sub.example}.")
    ends = sub.name == "unshare"
    if len(words) > 3 or (len(words) == 3 and (ends or words[2].value.lower() != "off")):
        takes = "one id and one person" if ends else "one id, one person, and off to end it"
        raise Wrong(words[-1], f"{sub.name} takes {takes}.")
    return replace(named, text=_person(words[1], policy).ref, action="off" if ends or words[2:] else "")


def read_transfer(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read an id, and to whom it is offered; or `accept` or `decline`."""
    named = read_id(sub, words[:1], line, policy)
    if len(words) < 2:
        raise Wrong(end(line), f"Say to whom, as in {sub.example}; or accept, or decline.")
    if len(words) > 2:
        raise Wrong(words[2], f"{sub.name} takes one id, and one person, accept or decline.")
    action = words[1].value.lower()
    if action in ("accept", "decline"):
        return replace(named, action=action)
    return replace(named, text=_person(words[1], policy).ref)


def _person(word: WordToken, policy: Policy) -> Actor:
    try:
        return known_person(word.value, policy.same_person)
    except BadHolder as error:
        said = f"{show(word.value)} is nobody known here; mention the person, or write operator:ada."
        raise Wrong(word, said) from error


def read_reason(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read an id, and why: all that follows."""
    named = read_id(sub, words[:1], line, policy)
    if len(words) < 2:
        raise Wrong(end(line), f"Say why, as in {sub.example}.")
    return replace(named, text=" ".join(word.value.removeprefix("for=") for word in words[1:]))
