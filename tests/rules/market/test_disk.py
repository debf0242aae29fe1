"""The disk of a request: what the policy asks for, and what a described run needs."""

from __future__ import annotations

from typing import Any

import pytest

from bot.rules.market.disk import disk_gb, disk_sentence
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


@pytest.mark.parametrize(
    ("changes", "gb"),
    [
        ({"install": "train"}, 33),
        ({"install": "train", "work": ("model=7B", "tokens=2B")}, 243),
        ({"install": "serve", "workload": "serve", "model": "Qwen/Qwen2.5-7B-Instruct"}, 54),
        ({"install": "serve", "workload": "serve", "model": "org/unknown"}, 38),
    ],
)
def test_software_has_room_beside_the_image_and_what_it_serves(changes: dict[str, Any], gb: int) -> None:
    assert disk_gb(job(disk_gb=10, **changes), Policy(min_disk_gb={"default": 10})) == gb


def test_the_sentence_about_the_disk_names_the_software() -> None:
    said = disk_sentence(job(work=("model=7B", "tokens=2B"), install="train"))
    assert said.endswith("and two checkpoints (196). install=train needs 13 GB more.")
    assert disk_sentence(job(install="train")) == ""
