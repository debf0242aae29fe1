"""Refuse text that the `/gpu` language can't read, and quote words in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class BadWord(ValueError):
    """Refuse a word that cannot be read; the message is a sentence without the word's position."""


def nearest(text: str, known: Iterable[str]) -> str:
    """Return the closest of `known`, or an empty text where none is close."""
    # Two letters that change places in a word of three leave two of three alike.
    found = get_close_matches(text.lower()[:40], tuple(known), n=1, cutoff=0.72 if len(text) > 3 else 0.6)
    return found[0] if found and found[0] != text.lower() else ""


def near(text: str, known: Iterable[str]) -> str:
    """Suggest the closest of `known`, as ` Did you mean x?`, or nothing."""
    found = nearest(text, known)
    return f" Did you mean {found}?" if found else ""


def show(text: str) -> str:
    """Quote a word inside a sentence, cut when it is long."""
    return f"“{text[:40]}…”" if len(text) > 40 else f"“{text}”"
