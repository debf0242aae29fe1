"""What a status says about an instance that has been ready."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.rules.instances.health import ended_sentence, given_up_at, other_gpus, trouble
from providers.contract import InstanceStatus


@pytest.mark.parametrize(
    ("status", "spot", "code"),
    [
        (InstanceStatus.RUNNING, False, None),
        (InstanceStatus.TERMINATED, False, None),
        (InstanceStatus.ERROR, False, "broken"),
        (InstanceStatus.OFFLINE, True, "broken"),
        (InstanceStatus.STOPPED, True, "outbid"),
        (InstanceStatus.STOPPED, False, "stopped_there"),
        (InstanceStatus.BOOTING, False, "restarting"),
        (InstanceStatus.PENDING, False, "restarting"),
    ],
)
def test_trouble(status: InstanceStatus, spot: bool, code: str | None) -> None:
    found = trouble(status, spot=spot)
    assert (found.code if found else None) == code
    assert trouble(str(status), spot=spot) == found


@pytest.mark.parametrize(
    ("seen", "count", "other"),
    [
        ("RTX3090", 2, "2x RTX3090"),
        ("RTX4090", 1, "1x RTX4090"),
        ("RTX3090", None, "2x RTX3090"),
        ("RTX4090", 2, ""),
        (None, None, ""),
        ("RTX4090", 3, ""),
        ("A spelling of its own", 2, ""),
        (None, 0, ""),
    ],
)
def test_other_gpus_than_the_approved_ones(seen: str | None, count: int | None, other: str) -> None:
    assert other_gpus("RTX4090", 2, seen, count) == other
    found = trouble(InstanceStatus.RUNNING, spot=False, other=other)
    assert (found is not None) == bool(other)
    if found is not None:
        assert other in found.sentence
        assert "That did not change within 10 minutes" in ended_sentence(found, "10 minutes")


def test_it_is_given_up_after_the_grace_with_both_reasons() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert given_up_at(since, 600) == since + timedelta(minutes=10)
    found = trouble(InstanceStatus.OFFLINE, spot=False)
    assert found is not None
    sentence = ended_sentence(found, "10 minutes")
    assert "lost contact" in sentence
    assert "within 10 minutes" in sentence
