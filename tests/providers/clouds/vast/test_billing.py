"""Vast.ai's bill: documented rows are whole days with the last one included, and each contract has one total."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.clouds.vast.billing import charge_lines
from providers.errors import UnexpectedResponse

#: The example row of the official document of `show charges`.
DOCUMENTED: dict[str, Any] = {
    "start": 1730419200,
    "end": 1730678400,
    "type": "instance",
    "source": "instance-12345678",
    "description": "Instance 12345678 Charges - 4 days",
    "amount": 38.421,
    "metadata": {"template_id": 101, "label": "my-training-job", "endpoint_id": 19392, "workergroup_id": 25355},
    "items": [
        {
            "start": 1730419200,
            "end": 1730678400,
            "type": "gpu",
            "source": None,
            "description": "96.000 hours at $0.389/hour",
            "amount": 37.344,
            "metadata": {},
            "items": [],
        }
    ],
}


def test_the_documented_row_is_four_whole_days() -> None:
    (line,) = charge_lines([DOCUMENTED])
    assert (line.start, line.end) == (datetime(2024, 11, 1, tzinfo=UTC), datetime(2024, 11, 5, tzinfo=UTC))
    assert line.end - line.start == timedelta(hours=96)
    assert (line.line_id, line.ref) == ("instance-12345678/gpu", "12345678")
    assert (line.component, line.amount_usd) == ("gpu", Decimal("37.344"))


def test_a_row_becomes_one_line_for_each_component() -> None:
    part = {"start": 1760000000, "end": 1760003600, "amount": 0.36, "source": None}
    row = {
        **part,
        "type": "instance",
        "source": "instance-7",
        "items": [{**part, "type": word} for word in ("gpu", "disk", "bwd", "bwu", "tax")],
    }
    lines = {line.component: line for line in charge_lines([row])}
    assert {name: line.amount_usd for name, line in lines.items()} == {
        "gpu": Decimal("0.36"),
        "storage": Decimal("0.36"),
        "bandwidth": Decimal("0.72"),
        "other": Decimal("0.36"),
    }
    assert {line.ref for line in lines.values()} == {"7"}
    assert {line.line_id for line in lines.values()} == {f"instance-7/{name}" for name in lines}
    assert {(line.start, line.end) for line in lines.values()} == {
        (datetime(2025, 10, 9, tzinfo=UTC), datetime(2025, 10, 10, tzinfo=UTC))
    }
    assert charge_lines([{**part, "source": "instance-7", "type": "instance"}])[0].component == "other"


def test_a_row_read_from_a_later_day_on_has_the_same_key() -> None:
    later = {**DOCUMENTED, "start": 1730505600, "items": [{**DOCUMENTED["items"][0], "start": 1730505600}]}
    (first,), (second,) = charge_lines([DOCUMENTED]), charge_lines([later])
    assert first.line_id == second.line_id


def test_a_second_row_of_a_contract_is_not_added_to_the_first() -> None:
    lines = charge_lines([DOCUMENTED, DOCUMENTED])
    assert [line.line_id for line in lines] == ["instance-12345678/gpu", "instance-12345678/gpu/2"]
    assert {line.amount_usd for line in lines} == {Decimal("37.344")}


@pytest.mark.parametrize(
    "row",
    [
        None,
        {"amount": 1},
        {"amount": None, "start": 1, "end": 2},
        {"amount": "x"},
        {"amount": 1, "start": 1, "end": 253402214400},
        {"items": 7},
        {"items": [7]},
    ],
)
def test_a_row_without_amount_or_period_is_unexpected(row: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        charge_lines([row])


SCALARS: st.SearchStrategy[Any] = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4)


@given(st.dictionaries(st.sampled_from(["start", "end", "amount", "type", "source", "items"]), SCALARS))
def test_no_row_breaks_the_reading(row: dict[str, Any]) -> None:
    with contextlib.suppress(UnexpectedResponse):
        assert len(charge_lines([row])) == 1
