"""The terminal of these tests: a pipe, unless a test says how wide it is."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the width that whoever runs the tests has set: with one, lists are printed for people."""
    monkeypatch.delenv("COLUMNS", raising=False)
