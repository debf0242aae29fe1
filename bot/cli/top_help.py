"""Print `gpu-shopper --help` without the libraries of the command line, whose import takes longer than Python's start.

The text is the one that typer and rich print, to the byte; a test compares both. Where something special is wanted
(a narrow terminal, other colours, another encoding), theirs is printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from bot.cli.command_table import ABOUT, COMMANDS

PROGRAM = "gpu-shopper"
OPTIONS = (("--version", "", "Print the version."), ("--help", "-h", "Show this message and exit."))
#: The narrowest terminal in which every line of the table fits.
LEAST = 80
#: Variables by which somebody chooses how typer and rich print.
CHOICES = (
    "FORCE_COLOR", "GITHUB_ACTIONS", "JPY_PARENT_PID", "NO_COLOR", "PY_COLORS", "TERMINAL_WIDTH", "TTY_COMPATIBLE",
    "TYPER_USE_RICH", "_GPU_SHOPPER_COMPLETE", "_TYPER_FORCE_DISABLE_TERMINAL",
)  # fmt: skip
#: Terminals without colours or with a size of their own.
PLAIN_TERMINALS = ("", "dumb", "unknown")
BOLD, DIM, YELLOW, CYAN, GREEN = "1", "2", "1;33", "1;36", "1;32"


def print_help(argv: Sequence[str]) -> bool:
    """Print the list of commands when exactly that is asked for; False where the libraries must do it."""
    if list(argv[1:]) not in (["--help"], ["-h"]) or os.path.basename(argv[0]) != PROGRAM:  # noqa: PTH119 # pathlib takes 3 ms.
        return False
    styled, width = sys.stdout.isatty(), _width(os.environ)
    usual = sys.stdout.encoding.lower() == "utf-8" and sys.platform != "win32"
    if not usual or width < LEAST or any(name in os.environ for name in CHOICES):
        return False
    if styled and os.environ.get("TERM", "").strip().lower() in PLAIN_TERMINALS:
        return False
    sys.stdout.write("".join(f"{line}\n" for line in lines(width, styled=styled)))
    return True


def _width(environ: Mapping[str, str]) -> int:
    """Return how wide the terminal is, as rich finds it."""
    if environ.get("COLUMNS", "").isdigit():
        return int(environ["COLUMNS"])
    for descriptor in (0, 1, 2):
        try:
            return os.get_terminal_size(descriptor).columns or LEAST
        except OSError:
            continue
    return LEAST


def lines(width: int, *, styled: bool) -> Iterator[str]:
    """Yield the lines of the help for a terminal of this width, at least 80."""

    def of(style: str, text: str) -> str:
        return f"\033[{style}m{text}\033[0m" if styled and text else text

    def panel(title: str, rows: Sequence[tuple[str, str, int]]) -> Iterator[str]:
        """Yield a frame of lines, each with its styled first part, its text, and the width of the first part."""
        bar = of(DIM, "│")
        head = f" {title} "
        yield of(DIM, "╭─") + of(DIM, head) + of(DIM, "─" * (width - 4 - len(head))) + of(DIM, "─╮")
        for first, text, taken in rows:
            yield f"{bar} {first}{text:<{width - 4 - taken}} {bar}"
        yield of(DIM, f"╰{'─' * (width - 2)}╯")

    usage = f"{PROGRAM} [OPTIONS] COMMAND [ARGS]..."
    yield of(BOLD, " " * width)
    yield (
        of(BOLD, " ")
        + of(YELLOW, "Usage: ")
        + of(BOLD, usage)
        + of(BOLD, " " * (width - 9 - len(usage)))
        + of(BOLD, " ")
    )
    yield of(BOLD, " " * width)
    for line in _wrapped(ABOUT, width - 2):
        yield f" {line:<{width - 2}} "
    yield " " * width
    longest = max(len(name) for name, _, _ in OPTIONS)
    options = []
    for name, short, text in OPTIONS:
        first = f"{of(CYAN, '-')}{of(CYAN, name[1:])}" if styled else name
        second = of(GREEN, short) if short else "  "
        options.append((f"{first}{' ' * (longest - len(name))}  {second}{' ' * 8}", text, longest + 12))
    yield from panel("Options", options)
    panels: dict[str, list[tuple[str, str, int]]] = {}
    widest = max(len(name) for name, entry in COMMANDS.items() if not entry.hidden)
    for name, entry in COMMANDS.items():
        if not entry.hidden:
            first = f"{of(CYAN, f'{name:<{widest}}')}{of(CYAN, ' ')} "
            panels.setdefault(entry.panel, []).append((first, entry.help, widest + 2))
    for title, rows in panels.items():
        yield from panel(title, rows)
    yield ""


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Yield the text in lines of at most this width."""
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line
