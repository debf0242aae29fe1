"""The disk of a request: what the policy asks for, and what a described run needs."""

from __future__ import annotations

import pytest

from bot.rules.market.disk import disk_gb
from bot.rules.policy.policy import Policy
from tests.rules.builders import job


@pytest.mark.parametrize(
    ("asked", "work", "gb"),
    [
        (0, (), 50),
        (80, (), 80),
        # Image 20 + weights 14 + two checkpoints of 98 GB.
        (50, ("model=7B", "tokens=2B"), 230),
        (500, ("model=7B", "tokens=2B"), 500),
        (50, ("model=7B", "tokens=2B", "checkpoint-size=20GB"), 74),
        (50, ("model=7B", "tokens=2B", "dataset=300GB"), 530),
        # Nothing is learned, so only the weights are kept.
        (50, ("model=70B", "type=serving"), 160),
    ],
)
def test_a_described_run_has_room_for_its_image_its_weights_and_two_checkpoints(
    asked: int, work: tuple[str, ...], gb: int
) -> None:
    assert disk_gb(job(disk_gb=asked, work=work), Policy(min_disk_gb={"default": 50})) == gb
