"""Billed time, look by look: believed where the cloud says it, and never less than the cloud may bill elsewhere."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from bot.rules.billing.billed_time import Billed, bills_gpu, look
from providers.capabilities import BillingRule, BillingStart
from providers.contract import InstanceStatus
from tests.support.clock import START

RUNNING, STOPPED, OFFLINE, BOOTING, ERROR = (
    InstanceStatus.RUNNING,
    InstanceStatus.STOPPED,
    InstanceStatus.OFFLINE,
    InstanceStatus.BOOTING,
    InstanceStatus.ERROR,
)
RULE = BillingRule(storage_while_offline=False)
FROM_CREATE = BillingRule(starts=BillingStart.CREATE)
RESERVED = BillingRule(starts=BillingStart.CREATE, gpu_while_stopped=True, gpu_while_broken=True)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def seen(*looks: tuple[float, InstanceStatus], rule: BillingRule = RULE, start: Billed | None = None) -> Billed:
    """What a row of looks makes of an instance that was sent at START."""
    billed = start or Billed(storage_from=START)
    for seconds, status in looks:
        billed = look(billed, status, None, rule, at(seconds))
    return billed


def test_a_gpu_that_was_given_back_is_not_billed() -> None:
    keeps = BillingRule(gpu_while_stopped=True)
    assert bills_gpu(STOPPED, keeps)
    assert not bills_gpu(STOPPED, keeps, holds_gpu=False)
    assert not bills_gpu(STOPPED, BillingRule(), holds_gpu=True)


@pytest.mark.parametrize(
    ("rule", "billing"),
    [
        (RULE, {RUNNING}),
        (FROM_CREATE, {RUNNING, BOOTING}),
        (RESERVED, {RUNNING, BOOTING, STOPPED, ERROR, OFFLINE}),
    ],
)
def test_which_states_bill_is_the_clouds_rule(rule: BillingRule, billing: set[InstanceStatus]) -> None:
    assert {status for status in (RUNNING, BOOTING, STOPPED, ERROR, OFFLINE) if bills_gpu(status, rule)} == billing


def test_a_start_between_two_looks_is_billed_from_the_last_that_showed_none() -> None:
    assert seen((5, BOOTING), (10, BOOTING), (7200, RUNNING)).gpu_from == at(10)
    assert seen((7200, RUNNING)).gpu_from == at(7200)


@pytest.mark.parametrize(("said", "believed"), [(40.0, 40.0), (9000.0, 7200.0)])
def test_the_clouds_own_start_is_believed_unless_it_is_to_come(said: float, believed: float) -> None:
    booting = seen((10, BOOTING))
    assert look(booting, RUNNING, at(said), RULE, at(7200)).gpu_from == at(believed)


def test_a_pause_is_left_out() -> None:
    paused = seen((10, RUNNING), (100, STOPPED), (200, STOPPED))
    assert (paused.gpu_from, paused.gpu_until, paused.unbilled_at) == (at(10), at(100), at(200))
    resumed = seen((7200, RUNNING), start=paused)
    assert (resumed.gpu_from, resumed.gpu_until) == (at(10 + 100), None)
    assert seen((7300, RUNNING), start=resumed) == resumed


@pytest.mark.parametrize(("said", "pause_s"), [(3000.0, 2900.0), (50.0, 100.0), (9999.0, 100.0)])
def test_the_clouds_time_of_a_restart_is_believed_if_it_can_be_one(said: float, pause_s: float) -> None:
    paused = seen((10, RUNNING), (100, STOPPED), (200, STOPPED))
    assert look(paused, RUNNING, at(said), RULE, at(7200)).gpu_from == at(10 + pause_s)


def test_the_disk_of_a_host_that_is_out_of_contact_costs_nothing_where_the_cloud_says_so() -> None:
    away = seen((10, RUNNING), (100, OFFLINE), (400, OFFLINE))
    assert (away.storage_from, away.storage_until) == (at(0), at(100))
    back = seen((500, RUNNING), start=away)
    assert (back.storage_from, back.storage_until) == (at(300), None)
    assert (back.gpu_from, back.gpu_until) == (at(310), None)
    charged = seen((10, RUNNING), (100, OFFLINE), rule=BillingRule())
    assert (charged.storage_from, charged.storage_until) == (at(0), None)


def test_a_disk_that_was_never_ordered_has_no_time() -> None:
    assert seen((100, OFFLINE), start=Billed()) == Billed(unbilled_at=at(100))


def test_a_cloud_that_bills_whatever_the_state_never_pauses() -> None:
    billed = Billed(gpu_from=START, storage_from=START)
    assert seen((10, BOOTING), (100, RUNNING), (200, STOPPED), (300, ERROR), rule=RESERVED, start=billed) == billed
