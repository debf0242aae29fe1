"""Declare fixed vocabularies: every word of one has its label for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Vocabulary(StrEnum):
    """Give a `StrEnum`'s members labels. The value is stored and read by programs; the label is for people."""

    _value_: str
    label: str

    def __new__(cls, value: str, label: str = "") -> Self:
        """Make one word. Only type checkers need the default: they take `Kind(text)`, a look-up, for this call."""
        if not label:
            raise TypeError(f"{value} has no label")
        word = str.__new__(cls, value)
        word._value_ = value
        word.label = label
        return word
