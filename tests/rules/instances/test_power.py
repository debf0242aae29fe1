"""What may be stopped, started and restarted, by what a cloud can do and never by its name."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.instances.power import PowerAction, judge
from ledger.kernel.states import SessionState
from providers.capabilities import BillingRule, Capabilities
from tests.support.clock import START

ABLE = Capabilities(stop=True, spot=False, labels=True, balance=True, charges=True, logs=True)
RUNNING, STOPPED = SessionState.RUNNING, SessionState.STOPPED
DISK = Decimal("0.01")


def test_a_stop_says_what_goes_on_costing_and_until_when() -> None:
    told = judge(PowerAction.STOP, "here", ABLE, RUNNING, None, DISK, START)
    assert told.allowed
    for part in ("Stopping.", "pay only for the disk ($0.010/h)", "2026-03-02", "a start can fail"):
        assert part in told.sentence
    assert "The disk is deleted at 2026-03-02" in told.sentence
    outlives = judge(PowerAction.STOP, "here", ABLE, RUNNING, None, DISK, START, outlives=True).sentence
    # The caller says the one end that a preserved disk has.
    assert ("2026-03-02" in outlives, "deleted" in outlives) == (False, False)
    free = replace(ABLE, billing=BillingRule(storage_while_stopped=False))
    told = judge(PowerAction.STOP, "here", free, RUNNING, None, DISK, None)
    assert "you pay nothing." in told.sentence
    told = judge(PowerAction.STOP, "here", free, RUNNING, None, DISK, None, "A stop wipes /.")
    assert "you pay nothing. A stop wipes /. Somebody else may" in told.sentence


def test_a_restart_says_what_it_wipes() -> None:
    told = judge(PowerAction.RESTART, "here", ABLE, RUNNING, None, DISK, START)
    assert told.sentence.endswith("You still pay for the GPU meanwhile, and the disk stays.")
    told = judge(PowerAction.RESTART, "here", ABLE, RUNNING, None, DISK, START, "A restart wipes /.")
    assert told.sentence.endswith("You still pay for the GPU meanwhile. A restart wipes /.")


def test_9286_a_stop_that_saves_nothing_is_not_a_stop() -> None:
    billed = replace(ABLE, billing=BillingRule(gpu_while_stopped=True))
    told = judge(PowerAction.STOP, "here", billed, RUNNING, None, DISK, START)
    assert (told.allowed, told.code) == (False, "stop_saves_nothing")
    told = judge(PowerAction.STOP, "here", replace(ABLE, stop=False), RUNNING, None, DISK, START)
    assert (told.allowed, told.code) == (False, "cannot_stop")


@pytest.mark.parametrize(
    ("order", "state", "wanted", "able", "code"),
    [
        (PowerAction.START, STOPPED, None, ABLE, "power_action"),
        (PowerAction.START, RUNNING, None, ABLE, "wrong_state"),
        (PowerAction.STOP, STOPPED, None, ABLE, "wrong_state"),
        (PowerAction.STOP, RUNNING, "restart", ABLE, "under_way"),
        (PowerAction.STOP, STOPPED, "start", ABLE, "power_action"),
        (PowerAction.STOP, RUNNING, "start", ABLE, "power_action"),
        (PowerAction.STOP, SessionState.TERMINATING, "start", ABLE, "wrong_state"),
        (PowerAction.RESTART, RUNNING, None, ABLE, "power_action"),
        (PowerAction.RESTART, RUNNING, None, replace(ABLE, restart=False), "cannot_restart"),
        (PowerAction.RESTART, SessionState.TERMINATING, None, ABLE, "wrong_state"),
    ],
)
def test_orders(order: PowerAction, state: SessionState, wanted: str | None, able: Capabilities, code: str) -> None:
    told = judge(order, "here", able, state, wanted, DISK, START)
    assert (told.code, told.allowed) == (code, code == "power_action")
