"""Show a spinner on standard error while something takes longer than half a second.

It draws only on a terminal, and it erases itself before anything else is printed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

DELAY_S, FRAME_S = 0.5, 0.1
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ERASE = "\r\x1b[K"


@contextmanager
def busy(doing: str, delay_s: float = DELAY_S) -> Iterator[None]:
    """Show what is being done, such as `Asking the clouds`, for as long as the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    drawing = threading.Thread(target=_draw, args=(doing, done, delay_s), daemon=True)
    drawing.start()
    try:
        yield
    finally:
        done.set()
        drawing.join()


def _draw(doing: str, done: threading.Event, delay_s: float) -> None:
    if done.wait(delay_s):
        return
    frame = 0
    while True:
        sys.stderr.write(f"{ERASE}{FRAMES[frame % len(FRAMES)]} {doing} …")
        sys.stderr.flush()
        if done.wait(FRAME_S):
            break
        frame += 1
    sys.stderr.write(ERASE)
    sys.stderr.flush()
