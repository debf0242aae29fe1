"""What a create left behind: removed when its instance is over, and nothing else ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.rules.instances.cleanup import GRACE, Fate, Owner, fate
from bot.rules.values.labels import LabelKind

NOW = datetime(2026, 11, 22, 4, tzinfo=UTC)
PROVED = Owner("lambda", is_open=False, proved=True, over_at=NOW)
OPEN = Owner("lambda", is_open=True, proved=False, over_at=NOW - timedelta(days=1))


def given_up(ago: timedelta, cloud: str = "lambda") -> Owner:
    return Owner(cloud, is_open=False, proved=False, over_at=NOW - ago)


@pytest.mark.parametrize(
    ("kind", "owner", "expected"),
    [
        (LabelKind.OURS, PROVED, Fate.REMOVE),
        (LabelKind.OURS, given_up(GRACE), Fate.REMOVE),
        (LabelKind.OURS, given_up(GRACE - timedelta(seconds=1)), Fate.KEEP),
        (LabelKind.OURS, OPEN, Fate.KEEP),
        (LabelKind.OURS, given_up(GRACE, "vast"), Fate.FOREIGN),
        (LabelKind.OURS, None, Fate.UNKNOWN),
        (LabelKind.FORGED, PROVED, Fate.FORGED),
        (LabelKind.FOREIGN_DEPLOYMENT, PROVED, Fate.FOREIGN),
        (LabelKind.NONE, None, Fate.FOREIGN),
    ],
)
def test_only_what_is_surely_ours_and_over_is_removed(kind: LabelKind, owner: Owner | None, expected: Fate) -> None:
    assert fate(kind, "lambda", owner, NOW) is expected
