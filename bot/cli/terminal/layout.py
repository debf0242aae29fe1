"""Lay a table out for a terminal: ids and commands stay whole, and wide prose moves below its row.

Ids, prices and commands are never broken and never shortened. Cells that do not fit beside them move below their row,
prose first, then the widest; so a narrow terminal shows the same words in more lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

GAP, INDENT = "  ", "    "
#: Columns whose cells are read and not typed: they move below the row first.
PROSE = frozenset({"why", "reason", "marks", "region", "range", "until", "made", "ends", "name", "scopes", "last used"})
#: Columns whose cells need no heading below their row.
SPEAKS_FOR_ITSELF = frozenset({"why", "reason"})
NOTHING = frozenset({"", "-"})
#: Columns whose cells are states.
COLOURED = frozenset({"state", "set", ""})
#: Colour → the states that have it: well, on its way or waiting for somebody, wrong, and over.
STYLES: Mapping[str, frozenset[str]] = {
    "green": frozenset({"running", "approved", "ok", "on", "active", "sent"}),
    "yellow": frozenset(
        {
            "waiting for approval",
            "getting offers",
            "launching soon",
            "launching",
            "stopped",
            "ending",
            "terminating",
            "quarantined",
            "pending",
            "not set",
        }
    ),
    "red": frozenset(
        {"failed", "without an offer", "rejected", "refused", "unknown outcome", "revoked", "expired", "no"}
    ),
    "dim": frozenset({"ended", "gone", "cancelled"}),
}


def beside(widths: Sequence[int], head: Sequence[str], width: int) -> tuple[int, ...]:
    """Return the columns that stay in the row, by position; the first always does."""

    def fits(places: Sequence[int]) -> bool:
        return sum(widths[place] for place in places) + len(GAP) * (len(places) - 1) <= width

    kept, gone = list(range(len(head))), []
    while len(kept) > 1 and not fits(kept):
        prose = [place for place in kept[1:] if head[place] in PROSE]
        gone.append(max(prose or kept[1:], key=lambda place: widths[place]))
        kept.remove(gone[-1])
    for place in sorted(gone):
        if fits([*kept, place]):
            kept.append(place)  # The widest one made room for it.
    return tuple(sorted(kept))


def lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], console: Console, extra: Collection[str] = ()
) -> Iterator[Text]:
    """Return the lines of a table, its heading first; cells hold no control characters.

    The columns `extra` are left out where they do not fit.
    """
    head, rows = _fitting(head, rows, console.width, extra)
    widths = _widths(head, rows)
    kept = beside(widths, head, console.width)
    if len(kept) < len(head):  # Headings in several lines may make the room that cells need.
        widths = [max(map(cell_len, [*name.split(" "), *cells])) for name, *cells in zip(head, *rows, strict=True)]
        kept = beside(widths, head, console.width)
    under = [place for place in range(len(head)) if place not in kept]
    for heading in _headings(head, widths):
        yield Text(_row(heading, kept, widths), style="bold")
    for row in rows:
        shown = Text(_row(row, kept, widths))
        for place in kept:
            if head[place] in COLOURED and (style := _style(row[place])):
                shown.highlight_words([row[place]], style)
        yield shown
        for place in under:
            yield from _under(head[place], row[place], console)


def _headings(head: Sequence[str], widths: Sequence[int]) -> Iterator[Sequence[str]]:
    """Return the lines of the heading, each name broken between words to the width of its column."""
    names = [wrap(name, width) or [""] for name, width in zip(head, widths, strict=True)]
    deepest = max(map(len, names))
    yield from zip(*([*[""] * (deepest - len(name)), *name] for name in names), strict=True)


def _style(state: str) -> str:
    return next((style for style, states in STYLES.items() if state in states), "")


def _widths(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(head, *rows, strict=True)]


def _fitting(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, extra: Collection[str]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Leave out as many of the columns `extra` as it takes to fit, the last ones first."""
    widths, kept = _widths(head, rows), list(range(len(head)))
    for place in reversed(range(len(head))):
        if sum(widths[one] for one in kept) + len(GAP) * (len(kept) - 1) <= width:
            break
        if head[place] in extra:
            kept.remove(place)
    return [head[place] for place in kept], [[row[place] for place in kept] for row in rows]


def left_out(head: Sequence[str], rows: Sequence[Sequence[str]], width: int, extra: Collection[str]) -> tuple[str, ...]:
    """Return the columns among `extra` that `lines` leaves out at this width."""
    kept, _ = _fitting(head, rows, width, extra)
    return tuple(name for name in head if name not in kept)


def _row(cells: Sequence[str], kept: Sequence[int], widths: Sequence[int]) -> str:
    padded = (cells[place] + " " * (widths[place] - cell_len(cells[place])) for place in kept)
    return GAP.join(padded).rstrip()


def _under(name: str, cell: str, console: Console) -> Iterator[Text]:
    if cell in NOTHING:
        return
    said = cell if name in SPEAKS_FOR_ITSELF else f"{name}: {cell}"
    if " " not in cell:
        # A single word is an id. A terminal wraps one that is wider than itself, and still copies it whole.
        fits = len(INDENT) + cell_len(said) <= console.width
        yield from (Text(INDENT + part) for part in ([said] if fits else [f"{name}:", cell]))
        return
    for line in Text(said).wrap(console, max(console.width - len(INDENT), 1)):
        line.rstrip()
        yield Text(INDENT) + line
