"""Read which columns of a table somebody wants. Light to import."""

from __future__ import annotations

from collections.abc import Collection

from bot.rules.values.bad_word import BadWord, near, show


def read_columns(text: str, known: Collection[str], usual: tuple[str, ...]) -> tuple[str, ...]:
    """Read names of columns with commas, or `all`; the usual ones for nothing. Raises `BadWord`."""
    if text.strip().lower() == "all":
        return tuple(known)
    names = tuple(filter(None, (part.strip().lower().replace("_", "-") for part in text.split(","))))
    for name in names:
        if name not in known:
            raise BadWord(f"{show(name)} is no column; there are {', '.join(known)}.{near(name, tuple(known))}")
    return names or usual
