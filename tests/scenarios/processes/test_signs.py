"""The signs in the bot's messages are drawn by the practice page, which knows them by name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SIGN = re.compile(r"(?<![\w:]):([a-z][a-z0-9_]{0,40}):(?![\w:])")


def test_the_page_draws_every_sign_that_the_bot_writes() -> None:
    written = {
        name for path in sorted((ROOT / "bot" / "slack").rglob("*.py")) for name in SIGN.findall(path.read_text())
    }
    drawn = set(re.findall(r"[ {]\"?([a-z0-9_+-]+)\"?: \"", (ROOT / "bot/practice/static/js/emoji.js").read_text()))
    assert {"rocket", "thinking_face", "x"} <= written
    assert written <= drawn
