"""The policy as data."""

from __future__ import annotations

from dataclasses import fields

from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.policy.validation import validated


def test_the_defaults_are_valid_and_documented() -> None:
    assert validated(Policy()) == Policy()
    assert Timing().validated() == Timing()
    for kind in (Policy, Timing):
        assert all(item.metadata["doc"].strip().endswith((".", "}.")) for item in fields(kind))


def test_the_disk_is_at_least_the_minimum_of_the_workload() -> None:
    policy = Policy()
    assert policy.disk_gb("moe", None) == 64
    assert policy.disk_gb("MoE", 10) == 64
    assert policy.disk_gb("training", None) == 50
    assert policy.disk_gb("training", 200) == 200
    assert policy.disk_gb("training", None, "moe") == policy.disk_gb("training", 10, "MoE") == 64
    assert policy.disk_gb("training", None, "7B") == 50
