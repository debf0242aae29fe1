"""The floors below which production refuses to run."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from bot.rules.policy.timing import Timing


@pytest.mark.parametrize("practice", [False, True])
@pytest.mark.parametrize("value", [1e14, float("inf")])
def test_a_time_beyond_reason_is_refused(practice: bool, value: float) -> None:
    with pytest.raises(ValueError, match=r"terminate_page_s is \S+, but must be at most"):
        replace(Timing(), terminate_page_s=value).validated(practice=practice)


@pytest.mark.parametrize("name", [item.name for item in fields(Timing)])
def test_every_floor_holds_in_production_and_only_there(name: str) -> None:
    changes: dict[str, Any] = {name: 0.01}
    quick = replace(Timing(), **changes)
    with pytest.raises(ValueError, match=rf"{name} .* safe outside a practice workspace"):
        quick.validated()
    assert quick.validated(practice=True) is quick


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_practice_still_needs_times_above_zero(value: float) -> None:
    with pytest.raises(ValueError, match=r"sweep_s .* above 0"):
        Timing(sweep_s=value).validated(practice=True)
    with pytest.raises(ValueError, match="sweep_s"):
        Timing(sweep_s=value).validated()


def test_the_absence_rule_is_the_ledgers() -> None:
    rule = Timing(absence_count=4, absence_apart_s=11, absence_over_s=70).absence_rule
    assert (rule.count, rule.apart, rule.over) == (4, timedelta(seconds=11), timedelta(seconds=70))
