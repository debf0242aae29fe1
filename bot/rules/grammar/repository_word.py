"""Read the word `repo`: the git repository that a machine fetches before it starts the command."""

from __future__ import annotations

from typing import Any

from bot.rules.grammar.bad_word import BadWord
from bot.rules.policy.policy import Policy
from bot.rules.values.repository import BadRepositoryError, Repository


def read_repo(text: str, _policy: Policy) -> dict[str, Any]:
    """Read the git repository that is fetched before the command starts."""
    try:
        Repository.read(text)
    except BadRepositoryError as error:
        raise BadWord(str(error)) from error
    return {"repo": text}
