"""What own instances say about their hosts: which count, which failed, which were slow, and how long they ran."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.instances.host_history import HOST_FAILURES, PastInstance, host_records
from providers.contract import HostRecord
from tests.rules.builders import NOW

HOST = ("vast", "7")
GOOD = PastInstance(*HOST, "asked", NOW - timedelta(hours=5), NOW - timedelta(hours=3), None, None)


def check(gpu: str | None, *tflops: str, verdict: str = "") -> dict[str, Any]:
    found = [{"gpu": gpu, "memory_gb": "24"}] * max(len(tflops), 1)
    return {"at": NOW.isoformat(), "problem": "", "verdict": verdict, "gpus": found, "tflops": list(tflops)}


def record(*past: PastInstance) -> HostRecord | None:
    return host_records(past, NOW).get(HOST)


def test_each_host_has_its_own_record() -> None:
    other = replace(GOOD, cloud="tensordock")
    assert host_records([GOOD, other, GOOD], NOW) == {
        HOST: HostRecord(2, hours=Decimal(4)),
        ("tensordock", "7"): HostRecord(1, hours=Decimal(2)),
    }


@pytest.mark.parametrize("code", sorted(HOST_FAILURES))
def test_a_failure_of_the_host_counts_even_where_it_was_never_ready(code: str) -> None:
    assert record(replace(GOOD, outcome_code=code, reachable_at=None)) == HostRecord(1, failed=1)


@pytest.mark.parametrize("code", ["sold_out", "outbid", "asked", ""])
def test_what_never_ran_for_another_reason_says_nothing_about_the_host(code: str) -> None:
    assert record(replace(GOOD, outcome_code=code, reachable_at=None)) is None


def test_hours_run_until_now_and_of_a_stopped_machine_only_until_its_last_stop() -> None:
    assert record(replace(GOOD, ended_at=None)) == HostRecord(1, hours=Decimal(5))
    assert record(replace(GOOD, booked_s=1800)) == HostRecord(1, hours=Decimal("0.5"))
    assert record(replace(GOOD, ended_at=NOW - timedelta(hours=6))) == HostRecord(1)


@pytest.mark.parametrize(
    ("found", "slow"),
    [
        (check("RTX4090", "150.1"), 0),
        (check("RTX4090", "150.1", "99.9"), 1),
        (check("RTX4090"), 0),
        (check("L4", "30"), 0),
        (check(None, "1"), 0),
        (check("RTX4090", "1", verdict="throttled"), 0),
        (None, 0),
    ],
)
def test_a_card_below_the_share_of_its_sheet_was_slow(found: dict[str, Any] | None, slow: int) -> None:
    assert record(replace(GOOD, gpu_check=found)) == HostRecord(1, slow=slow, hours=Decimal(2))


def test_a_failed_session_is_not_slow_too() -> None:
    seen = replace(GOOD, outcome_code="lost", gpu_check=check("RTX4090", "90"))
    assert record(seen) == HostRecord(1, failed=1, hours=Decimal(2))


def test_a_gpu_without_a_published_rate_is_not_judged() -> None:
    assert record(replace(GOOD, gpu_check=check("X9000", "1"))) == HostRecord(1, hours=Decimal(2))
