"""When an instance is ended without the jobs, and what binds that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.rules.checkpoints.verification import ANSWER
from bot.rules.instances.watchdog import Ability, EndOrder, due
from bot.rules.policy.policy import Policy
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.must_end import MustEnd
from ledger.kernel.states import InstanceState
from tests.support.clock import START

POLICY = Policy()
KEEPS, LOSES = Ability(True, True, True), Ability(True, False, True)
PLAIN = MustEnd(
    "ins_1", "ses_1", "T1/U1", "vast", "acc", "7", "gs-1", "gpu-1", InstanceState.LIVE, "running", START, used=True
)
SAVES = replace(PLAIN, checkpoint="s3://bucket/run", hold_s=600)
DISK_S = POLICY.checkpoint_disk_s


def order(one: MustEnd, after_s: float, able: Ability = KEEPS, policy: Policy = POLICY) -> EndOrder | None:
    return due(one, policy, able, START + timedelta(seconds=after_s), overdue_s=20, patience_s=1800)


@pytest.mark.parametrize(
    ("changes", "after_s", "expected"),
    [
        ({}, 19, None),
        ({}, 20, EndOrder.TERMINATE),
        ({"deadline": None}, 9e6, None),
        # Save time, then a stop with its disk, then the end of the disk.
        ({"checkpoint": "s3://bucket/run", "hold_s": 600}, 619, None),
        ({"checkpoint": "s3://bucket/run", "hold_s": 600}, 620, EndOrder.STOP),
        ({"checkpoint": "s3://bucket/run", "hold_s": 600}, 620 + DISK_S, EndOrder.TERMINATE),
        ({"checkpoint": "s3://bucket/run", "hold_s": 600, "status": "stopped"}, 9000, None),
        # Nobody ever reached it, so there is nothing to save.
        ({"checkpoint": "s3://bucket/run", "hold_s": 600, "used": False}, 20, EndOrder.TERMINATE),
        ({"keep_disk": True}, POLICY.checkpoint_save_s + 20, EndOrder.STOP),
    ],
)
def test_the_end_and_what_was_granted_on_top(
    changes: dict[str, Any], after_s: float, expected: EndOrder | None
) -> None:
    assert order(replace(PLAIN, **changes), after_s) is expected


def test_where_a_stop_loses_the_disk_the_machine_itself_is_held() -> None:
    one = replace(SAVES, hold_s=7200)
    assert order(one, 7219, LOSES) is None
    assert order(one, 7220, LOSES) is EndOrder.TERMINATE
    assert order(SAVES, 620, policy=replace(POLICY, checkpoint_unverified="destroy")) is EndOrder.TERMINATE


@pytest.mark.parametrize(
    ("step", "last_s", "expected"),
    [
        (CheckpointStep.HELD, 3600 + ANSWER.total_seconds(), EndOrder.TERMINATE),
        (CheckpointStep.STOPPING, 3600 + ANSWER.total_seconds(), EndOrder.TERMINATE),
        (CheckpointStep.PASSED, 3600, EndOrder.TERMINATE),
        (CheckpointStep.SAVING, 3600, EndOrder.STOP),
    ],
)
def test_a_step_of_the_checkpoint_check_binds(step: CheckpointStep, last_s: float, expected: EndOrder) -> None:
    ending: dict[str, Any] = {
        "state": InstanceState.TERMINATING,
        "ordered_at": START,
        "session_end": "reservation_over",
    }
    one = replace(SAVES, **ending, step=step, step_until=START + timedelta(seconds=3600))
    before = EndOrder.STOP if step is CheckpointStep.STOPPING else None  # Its stop was ordered and may be sent again.
    assert order(one, last_s + 19) is before
    assert order(one, last_s + 20) is expected


def test_recovery_mode_delays_what_it_delays_for_the_jobs() -> None:
    minute = timedelta(minutes=1)
    late = replace(PLAIN, recovery_since=START + minute)
    assert order(late, 120) is None
    assert order(late, 60 + 1800) is EndOrder.TERMINATE
    # An end that lies after the first sighting was announced to its owner, who could extend it.
    assert order(replace(PLAIN, recovery_since=START - minute), 20) is EndOrder.TERMINATE
    # What a poll alone concluded waits as long as recovery mode is on; a person's order does not.
    concluded = replace(late, state=InstanceState.TERMINATING, ordered_at=START + 2 * minute)
    assert order(concluded, 9e5) is None
    assert order(replace(concluded, session_end="asked"), 140) is EndOrder.TERMINATE


def test_nothing_is_sent_where_no_call_ends_it() -> None:
    assert order(PLAIN, 9e6, Ability(terminates=False, keeps_disk=False, reads_checkpoints=True)) is None
