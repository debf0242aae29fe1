"""The least and the most of every number in the policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import pytest
import yaml

from bot.rules.policy.bounds import RANGES
from bot.rules.policy.policy import Policy
from bot.rules.policy.validation import validated


@pytest.mark.parametrize("name", RANGES)
def test_every_number_has_a_least_and_a_most_and_says_a_right_one(name: str) -> None:
    default, allowed = getattr(Policy(), name), RANGES[name]
    right = yaml.safe_load(allowed.example)
    for value in (allowed.least - 1, allowed.most + 1, 10**15, -(10**15)):
        wrong: dict[str, Any] = {name: value}
        if isinstance(default, Mapping | tuple):
            wrong = {name: {"default": value} if isinstance(default, Mapping) else (value,)}
        said = re.escape(f", for example {allowed.example}")
        with pytest.raises(ValueError, match=rf"{name} must lie between .*{said}"):
            validated(replace(Policy(), **wrong))
    assert all(map(allowed.holds, right if isinstance(right, list) else [right]))


def test_every_number_of_the_policy_has_a_range() -> None:
    kinds = (int, Decimal, float)
    numbers = {
        item.name
        for item in fields(Policy)
        if isinstance(value := getattr(Policy(), item.name), kinds) and not isinstance(value, bool)
    }
    assert numbers <= set(RANGES)
