"""Define the options and arguments that several commands share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from bot.cli.terminal.screen import fail

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document; times are in UTC.")]
Columns = Annotated[str, typer.Option("--columns", help="Only these columns, with commas.", metavar="NAMES")]
IdempotencyKey = Annotated[
    str, typer.Option("--idempotency-key", metavar="KEY", help="Run this command at most once for KEY.")
]
Reason = Annotated[str, typer.Option(help="Why; approvers and the audit log show it.")]
Words = Annotated[list[str] | None, typer.Argument(help="Why, in any words.", metavar="WORDS")]
Named = Annotated[str, typer.Argument(help="The id, or its last characters, as a list shows them.")]
#: An id, the end of one, or `vast:123`: an instance by its id at its cloud.
ID = re.compile(r"[A-Za-z0-9_]+|[a-z0-9]+:[A-Za-z0-9_.-]+", re.ASCII)
SHORTEST = 4
#: The first part of a path → what a person reads when nothing has the id.
UNKNOWN: Mapping[str, str] = {
    "sessions": 'No session "{id}". Run `gpu-shopper sessions`.',
    "requests": 'No request "{id}". Run `gpu-shopper requests`.',
    "audit": 'No request or session "{id}". Run `gpu-shopper requests`.',
    "webhooks": 'No webhook "{id}". Run `gpu-shopper webhooks list`.',
    "deliveries": 'No delivery "{id}". Run `gpu-shopper webhooks log WEBHOOK`.',
    "keys": 'No API key "{id}". Run `gpu-shopper keys list`.',
    "orphans": 'No orphan "{id}". Run `gpu-shopper orphans list`.',
    "bills": 'No bill "{id}". Run `gpu-shopper bills list`.',
}


def plain_id(text: str, subject: str = "requests") -> str:
    """Return an id that can be part of a path below `subject`; ends the program for what can be none."""
    bare = text.strip().strip("`")
    if not ID.fullmatch(bare) or len(bare) < SHORTEST:
        fail(UNKNOWN[subject].format(id=text[:40]), 2)
    return bare


def in_words(reason: str, words: list[str] | None) -> str:
    """Return the reason, given as an option or as the words at the end of the line."""
    said = " ".join(words or ())
    if reason and said:
        fail("Say why once: as words, or with --reason.", 2)
    return reason or said
