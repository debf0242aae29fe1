"""The journal in words."""

from __future__ import annotations

import pytest

from bot.rules.audit.event_text import happened, whole


@pytest.mark.parametrize(
    ("kind", "before", "after", "said"),
    [
        ("session.moved", "queued", "provisioning", "session launching soon → launching"),
        ("request.made", "", "quoting", "request made (getting offers)"),
        ("instance.intended", "", "ready", "instance recorded before its launch (launching soon)"),
        ("stray.moved", "seen", "gone", "orphan found → gone"),
        ("grant.moved", "open", "used", "spend approval not used yet → used"),
        ("instance.moved", "live", "asleep", "instance running → asleep"),
        ("session.goes_on", "", "", "session goes on"),
        ("odd", "", "", "odd"),
    ],
)
def test_an_event_is_said_in_words(kind: str, before: str, after: str, said: str) -> None:
    assert happened(kind, before, after) == said


def test_how_much_is_sealed_is_said() -> None:
    assert whole(1, 1) == "1 event, all in the hash chain. Nothing was changed."
    assert whole(9, 4) == "9 events, 4 in the hash chain so far, the rest within minutes. Nothing was changed."
