"""Escape, clean and measure texts for Slack, and build its two text objects."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

ELLIPSIS: Final = "…"
SECTION_TEXT_MAX: Final = 3000

# Zero-width joiner and the variation selectors build emoji, so they stay. Every other format character can hide or
# reorder text (bidi overrides, isolates, tags, zero-width spaces, byte-order marks) and is removed.
_JOINER: Final = "\u200d"
_WHITESPACE: Final = re.compile(r"\s+")
_SLACK_ESCAPES: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))


def escape(text: str) -> str:
    """Escape & < > as entities, so that nothing in `text` can be a mention, a link or a date.

    Slack's formatting page names these three characters and no other.
    """
    for raw, entity in _SLACK_ESCAPES:
        text = text.replace(raw, entity)
    return text


def unescape(text: str) -> str:
    """Undo `escape`, for text that Slack sends to us."""
    for raw, entity in reversed(_SLACK_ESCAPES):
        text = text.replace(entity, raw)
    return text


def measure(text: str) -> int:
    """Return the length for Slack's limits, in UTF-16 units.

    Slack does not say whether it counts code points or UTF-16 units; the larger of the two is safe for both.
    """
    if text.isascii():
        return len(text)
    return len(text) + sum(1 for character in text if ord(character) > 0xFFFF)


def clean(text: str, limit: int) -> str:
    """Clean `text`: one line, no control, bidi and invisible characters, cut with "…" to `limit`.

    The result still fits `limit` after `escape`. ValueError when `limit` is below one.
    """
    if limit < 1:
        raise ValueError(f"a limit of {limit} characters leaves no room for text: give at least 1")
    if text.isascii() and text.isprintable():
        return shorten(_WHITESPACE.sub(" ", text).strip(), limit, escaped=True)
    kept = "".join(" " if c.isspace() else c for c in text if c.isspace() or not _is_unsafe(c))
    return shorten(_WHITESPACE.sub(" ", kept).strip(), limit, escaped=True)


def _is_unsafe(character: str) -> bool:
    return character != _JOINER and unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co"}


def shorten(text: str, limit: int, *, escaped: bool) -> str:
    """Cut `text` to `limit` with an ellipsis; with `escaped` its length after `escape` counts."""
    cost = _escaped_cost if escaped else measure
    if cost(text) <= limit:
        return text
    room = limit - measure(ELLIPSIS)
    kept: list[str] = []
    for character in text:
        room -= cost(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + ELLIPSIS


def _escaped_cost(text: str) -> int:
    return measure(escape(text))


def plain(text: str, limit: int = SECTION_TEXT_MAX) -> dict[str, Any]:
    """Build a plain_text object: cleaned, cut to `limit`, nothing in it is parsed, `:names:` stay words."""
    return {"type": "plain_text", "text": clean(text, limit), "emoji": False}


def mrkdwn(text: str) -> dict[str, Any]:
    """Build a mrkdwn object with `verbatim`: bare @names, #names and addresses stay text.

    The caller has escaped and cleaned every foreign string inside `text`; its own markup is intended.
    """
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def quote_block(text: str, limit: int = SECTION_TEXT_MAX) -> dict[str, Any]:
    """Build a rich_text block that quotes foreign text: no markup in it works, so it cannot fake ours."""
    element = {"type": "text", "text": clean(text, limit) or ELLIPSIS}
    return {"type": "rich_text", "elements": [{"type": "rich_text_quote", "elements": [element]}]}
