"""Build the parts of every message; foreign text enters only through `safe`, `plain` or a quote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from bot.blockkit import clean, escape, mrkdwn, plain
from bot.blockkit.text import ELLIPSIS, shorten
from bot.rules.approvals.approvers import is_slack_group
from bot.rules.values.command_text import in_slack
from bot.rules.values.phrases import listed, usd
from ledger.kernel.actor import Actor, ActorKind

Block = dict[str, Any]

#: The longest foreign string inside a sentence of ours.
WORD_MAX: Final = 200
SENTENCE_MAX: Final = 600
TEXT_MAX: Final = 3_000
BUTTON_MAX: Final = 75
HEADER_MAX: Final = 150

# Slack has no escape for its formatting characters, so they are replaced by signs that look alike. Inside a word they
# format nothing, and names such as RTX_4090 stay as they are.
_LOOKALIKE: Final[Mapping[str, str]] = {"*": "∗", "_": "ˍ", "~": "∼", "`": "ʼ"}
_FORMATTING: Final = re.compile(r"(?<![0-9A-Za-z])[*_~]|[*_~](?![0-9A-Za-z])|`")

_USER: Final = re.compile(r"[UW][A-Z0-9]{2,20}")
_CHANNEL: Final = re.compile(r"[CDG][A-Z0-9]{2,20}")
_GROUP: Final = re.compile(r"S[A-Z0-9]{2,20}")


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its blocks, and a text that says the same to screen readers and in notifications."""

    text: str
    blocks: tuple[Block, ...] = ()

    @classmethod
    def of(cls, text: str) -> Message:
        """Build a message of one paragraph of our own mrkdwn."""
        return cls(text, (section(text),))

    def payload(self, version: int = 1) -> dict[str, Any]:
        """Return the arguments of a post or an edit; the block ids hold the version, because Slack wants new ones."""
        return {"text": self.text, "blocks": stamped(self.blocks, version)}


def stamped(blocks: Iterable[Block], version: int) -> list[Block]:
    """Return the blocks with ids that are unique in the message and new in this version; ids that are set stay."""
    return [{"block_id": f"v{version}.{index}", **block} for index, block in enumerate(blocks)]


def safe(text: str, limit: int = WORD_MAX) -> str:
    """Clean foreign text for mrkdwn: on one line, escaped, cut, without formatting characters; commands as Slack's."""
    return in_slack(escape(_FORMATTING.sub(lambda found: _LOOKALIKE[found[0]], clean(text, limit))))


def section(text: str, accessory: Block | None = None) -> Block:
    """Build a paragraph of our own mrkdwn."""
    block: Block = {"type": "section", "text": mrkdwn(clip(text, TEXT_MAX))}
    return {**block, "accessory": accessory} if accessory else block


def context(*texts: str) -> Block:
    """Build small print of our own mrkdwn."""
    return {"type": "context", "elements": [mrkdwn(clip(text, TEXT_MAX)) for text in texts if text][:10]}


def header(text: str) -> Block:
    """Build a title; foreign text is allowed in it."""
    return {"type": "header", "text": plain(text or "…", HEADER_MAX)}


def divider() -> Block:
    """Build a line between blocks."""
    return {"type": "divider"}


def actions(*elements: Block) -> Block:
    """Build a row of buttons."""
    return {"type": "actions", "elements": list(elements)}


def button(
    text: str, action_id: str, value: str, *, style: str = "", label: str = "", confirm: Block | None = None
) -> Block:
    """Build one button; `label` is what a screen reader says."""
    made: Block = {"type": "button", "text": plain(text, BUTTON_MAX), "action_id": action_id, "value": value}
    if style:
        made["style"] = style
    if label:
        made["accessibility_label"] = clean(label, BUTTON_MAX)
    if confirm:
        made["confirm"] = confirm
    return made


def confirm(title: str, text: str, yes: str, no: str = "Back", *, is_danger: bool = False) -> Block:
    """Build the question before a button does its work; `is_danger` makes the button in it red."""
    said = {"title": plain(title, 100), "text": plain(text, 300), "confirm": plain(yes, 30), "deny": plain(no, 30)}
    return said | ({"style": "danger"} if is_danger else {})


def table(rows: Iterable[Iterable[str]], right: Iterable[int] = (), wrapped: Iterable[int] = ()) -> Block:
    """Build a table of plain cells, the first row its header; `right` columns are numbers, `wrapped` ones prose."""
    cells = [[{"type": "raw_text", "text": clean(cell, 100) or "–"} for cell in row] for row in rows]
    aligned, folds = set(right), set(wrapped)
    columns = range(len(cells[0]) if cells else 0)
    settings: list[Block] = [{"align": "right" if column in aligned else "left"} for column in columns]
    for column in folds.intersection(columns):
        settings[column]["is_wrapped"] = True
    return {"type": "table", "rows": cells, "column_settings": settings}


def count_words(*texts: str) -> int:
    """Count the words of these lines as somebody reads them: signs between them are none."""
    return sum(any(sign.isalnum() for sign in word) for text in texts for word in text.split())


def clip(text: str, limit: int) -> str:
    """Cut our own text to `limit`, never inside an entity, a mention or a date."""
    short = shorten(text, limit, escaped=False)
    if short == text:
        return text
    head = short.removesuffix(ELLIPSIS)
    for opening, closing in (("<", ">"), ("&", ";")):
        start = head.rfind(opening)
        if start > head.rfind(closing):
            head = head[:start]
    return head.rstrip() + ELLIPSIS


def when(at: datetime) -> str:
    """Format a moment in each viewer's own time, with UTC for clients that cannot."""
    fallback = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{fallback}>"


def person(ref: str) -> str:
    """Format a person as mrkdwn: a mention for a Slack user, a name for everybody else."""
    try:
        actor = Actor.from_ref(ref)
    except ValueError:
        return safe(ref) or "somebody"
    if actor.kind is ActorKind.SLACK and _USER.fullmatch(actor.id):
        return f"<@{actor.id}>"
    if actor.kind is ActorKind.SYSTEM:
        return "the policy" if actor.id.startswith("policy") else "GPU Shopper"
    leads = {ActorKind.OPERATOR: "operator ", ActorKind.CONSUMER: "API key ", ActorKind.AGENT: "agent "}
    lead = leads.get(actor.kind, "")
    return f"{lead}{safe(actor.id)}"


def mentions(names: Iterable[str]) -> str:
    """Format people and user groups of the policy as mentions, and names without a Slack id as people."""
    people = [
        f"<@{name}>" if _USER.fullmatch(name) else f"<!subteam^{name}>" if _GROUP.fullmatch(name) else person(name)
        for name in names
    ]
    return ", ".join(people[:20]) + (" and others" if len(people) > 20 else "")


def alternatives(names: Iterable[str], needed: int = 1) -> str:
    """Format people and user groups: `@bob or @carol`, and `@bob and @carol` where all of them are needed."""
    every = list(names)
    found = [mentions([name]) for name in every]
    if len(found) > 20:
        found = [*found[:20], "others"]
    # How many people are in a user group is not known here.
    all_needed = len(every) <= needed and not any(map(is_slack_group, every))
    return listed(found, "and" if all_needed else "or")


def channel(name: str) -> str:
    """Format a channel as mrkdwn."""
    return f"<#{name}>" if _CHANNEL.fullmatch(name) else safe(name) or "a channel"


def code(text: str, limit: int = WORD_MAX) -> str:
    """Show foreign text in a fixed-width font. A backtick in it would end the span, so it is replaced."""
    return f"`{escape(clean(text, limit).replace('`', _LOOKALIKE['`'])) or '–'}`"


def dollars(amount_usd: Decimal) -> str:
    """Format dollars for mrkdwn: `<$0.01` would otherwise open a link."""
    return escape(usd(amount_usd))
