"""Read the words that let a job's command run again after a failure: `attempts=3 retry-codes=75,137`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bot.rules.grammar.bad_word import BadWord, show
from bot.wire.queue import MOST_ATTEMPTS

MOST_CODES: Final = 16
_LARGEST_CODE: Final = 255


def read_attempts(text: str, _policy: object) -> dict[str, Any]:
    """Read `3`: how often the command is started at most. Raises `BadWord`."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_ATTEMPTS:
        raise BadWord(f"{show(text)} is not a number of attempts from 1 to {MOST_ATTEMPTS}; write attempts=3.")
    return {"attempts": int(text)}


def read_retry_codes(text: str, _policy: object) -> dict[str, Any]:
    """Read `75,137`: after which exit codes the command runs again. Raises `BadWord`."""
    codes: list[int] = []
    for part in (one.strip() for one in text.split(",")):
        if not part.isascii() or not part.isdecimal() or not 1 <= int(part[:9]) <= _LARGEST_CODE:
            raise BadWord(f"{show(part)} is not an exit code from 1 to {_LARGEST_CODE}; write retry-codes=75,137.")
        if int(part) in codes:
            raise BadWord(f"The exit code {int(part)} is named twice. Keep one of the two.")
        codes.append(int(part))
    if len(codes) > MOST_CODES:
        raise BadWord(f"{len(codes)} exit codes are above the limit of {MOST_CODES}.")
    return {"retry_codes": tuple(codes)}


def check_attempts(said: Mapping[str, Any]) -> None:
    """Check that what is said of attempts belongs to a command. Raises `BadWord`."""
    if said.get("retry_codes") and said.get("attempts", 1) == 1:
        raise BadWord("retry-codes= needs a number of attempts above 1; add one, such as attempts=3.")
    if said.get("attempts", 1) > 1 and said.get("run") is None and not said.get("queue"):
        raise BadWord('attempts= is for a command; add one, such as run="python train.py".')
