"""Refuse a text that has a secret in it, with the same sentence in every client, and without repeating any of it."""

from __future__ import annotations

from typing import Final

from bot.rules.values.command_text import cli_command
from bot.rules.values.private_keys import looks_private
from bot.rules.values.repository import NO_PASSWORD
from bot.rules.values.secret_names import name_problem
from ledger.kernel.secret_shapes import REDACTED, secret_in

REASON: Final = "The reason"
#: The right form of a job that needs the secret.
_STORE: Final = f"Store it with {cli_command('secret set NAME')}, add secrets=NAME, and read it as $NAME."
#: The right form of a text that people read.
_LEAVE_OUT: Final = "Others read it, so leave that out. A job gets a secret with secrets=NAME."
#: The right form of a job that was read with the signatures of its addresses masked, and is asked for again.
_MASKED: Final = f"contains an address that was masked. Use {cli_command('again')}, or paste the address anew."
#: What is shown in place of a preset that nobody can use.
UNUSABLE: Final = "can't be used, because it contains a secret"

#: Fields in which nobody needs a secret: what a right one looks like.
_INSTEAD: Final = {REASON: _LEAVE_OUT, "repo=": NO_PASSWORD, "secrets=": name_problem("")}


def field_of(key: str) -> str:
    """Return how a sentence names the field of a key, such as `for`."""
    return REASON if key in ("for", "reason", "why") else f"{key}="


def has_secret(text: str) -> bool:
    """Whether a text has a secret in it: a key of a service, a password, or a private key."""
    return looks_private(text) or secret_in(text) != ""


def problem(field: str, text: str) -> str:
    """Say that the field has a secret in it, or the mark of one that was masked; "" where it has neither."""
    if REDACTED in text and field != REASON:
        return f"{field} {_MASKED}"
    kind = "a private key" if looks_private(text) else secret_in(text)
    return f"{field} contains {kind}. {_INSTEAD.get(field, _STORE)}" if kind else ""
