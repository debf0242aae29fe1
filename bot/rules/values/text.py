"""Clean typed text, and cut it into words that keep their positions."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_QUOTES = str.maketrans(
    {**dict.fromkeys("“”„‟«»″", '"'), **dict.fromkeys("‘’‚‛′", "'"), "≥": ">=", "≤": "<=", "×": "x", "−": "-"}
)
_ESCAPED = re.compile("&(?:lt|gt|amp);")
_SPACES = re.compile(" +")
_PLAIN_WORD = re.compile(r"[^ \"']+(?= |\Z)")
_MARKDOWN = re.compile(r"[\\|`\[\]]|<(?=[A-Za-z/!?])")
_ESCAPES = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}


@dataclass(frozen=True, slots=True)
class WordToken:
    """Hold one word of a line: its value without quotes, its text as typed, and its position."""

    value: str
    raw: str
    position: int
    quoted: bool = False


class UnclosedQuote(ValueError):
    """Say that a quote never ends; `position` is where it begins in the line."""

    def __init__(self, position: int) -> None:
        super().__init__("This quote is not closed.")
        self.position = position


def clean(text: str) -> str:
    """Clean a line: no control or invisible characters, even spaces, straight quotes, Slack's escapes undone."""
    undone = _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text)
    if undone.isascii() and undone.isprintable():
        return _SPACES.sub(" ", undone).strip()  # Nothing below would change it.
    spaced = "".join(" " if char.isspace() else char for char in undone.translate(_QUOTES))
    # Cc control, Cf format (bidi, zero width), Cs lone surrogates, Co private use, Cn unassigned.
    kept = "".join(char for char in spaced if not unicodedata.category(char).startswith("C"))
    return _SPACES.sub(" ", kept).strip()


def in_markdown(text: str) -> str:
    """Escape foreign text for one line of Markdown: no link, image, code, HTML or cell of a table begins in it."""
    shown = "".join(" " if char.isspace() else char for char in text)
    kept = "".join(char for char in shown if not unicodedata.category(char).startswith("C"))
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", _SPACES.sub(" ", kept).strip())


def tokens(line: str) -> list[WordToken]:
    """Cut a cleaned line into words; a quote opens only where a word or value begins. Raises `UnclosedQuote`."""
    words: list[WordToken] = []
    place = 0
    while place < len(line):
        if line[place] == " ":
            place += 1
            continue
        if plain := _PLAIN_WORD.match(line, place):
            words.append(WordToken(plain[0], plain[0], place))
            place = plain.end()
            continue
        start, value, quoted = place, "", False
        while place < len(line) and line[place] != " ":
            opens = place == start or line[place - 1] in "=<>"
            if line[place] in "\"'" and opens:
                end = line.find(line[place], place + 1)
                if end < 0:
                    raise UnclosedQuote(place)
                value, place, quoted = value + line[place + 1 : end], end + 1, True
            else:
                value, place = value + line[place], place + 1
        words.append(WordToken(value, line[start:place], start, quoted))
    return words


def caret(line: str, position: int, length: int, width: int = 72) -> str:
    """Write two lines for a fixed-width font: a window of `line` around the word, and carets under it."""
    before = max(0, min(position, len(line)) - width // 2)
    window = line[before : before + width]
    lead = "…" if before else ""
    tail = "…" if before + width < len(line) else ""
    under = " " * (position - before + len(lead)) + "^" * max(1, min(length, before + width - position))
    # A backtick would end the code block in which messages show this.
    return f"{lead}{window}{tail}".replace("`", "'") + "\n" + under
