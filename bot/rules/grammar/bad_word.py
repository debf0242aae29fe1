"""Refuse text that the `/gpu` language can't read."""

from __future__ import annotations


class BadWord(ValueError):
    """Refuse a word that cannot be read; the message is a sentence without the word's position."""
