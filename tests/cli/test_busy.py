"""A spinner: only on a terminal, only after half a second, and erased before anything else is printed."""

from __future__ import annotations

import os
import pty
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bot.cli.terminal.busy import ERASE, busy

LIMIT_S = 10.0


@contextmanager
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard error on a terminal of the test's own; yields the side on which it is read."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stderr, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stderr)
        yield ours
    os.close(ours)


def read(ours: int, limit_s: float = LIMIT_S) -> str:
    """What was drawn; empty where nothing is drawn in time."""
    return os.read(ours, 10_000).decode() if select.select([ours], [], [], limit_s)[0] else ""


def test_what_is_quick_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with screen(monkeypatch) as ours:
        with busy("Asking the clouds"):
            pass
        assert read(ours, 0) == ""


def test_what_takes_longer_is_drawn_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    with screen(monkeypatch) as ours:
        with busy("Asking the clouds", delay_s=0):
            first = read(ours)
        assert "Asking the clouds …" in first
        assert read(ours).endswith(ERASE)


def _interrupted(ours: int) -> None:
    with busy("Waiting", delay_s=0):
        read(ours)
        raise KeyboardInterrupt


def test_ctrl_c_erases_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with screen(monkeypatch) as ours:
        with pytest.raises(KeyboardInterrupt):
            _interrupted(ours)
        assert read(ours).endswith(ERASE)


def test_a_pipe_stays_clean(capsys: pytest.CaptureFixture[str]) -> None:
    with busy("Waiting", delay_s=0):
        pass
    assert capsys.readouterr().err == ""
