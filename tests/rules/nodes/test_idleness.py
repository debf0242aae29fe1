"""Idle per kind of work: what keeps a machine with resting GPUs, what does not, and what its warning says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.nodes.checkins import NodeStatus, Watched, after_checkin, early_end
from bot.rules.nodes.idleness import IdleSignal, is_busy, quiet_after, signals
from bot.rules.policy.policy import Policy
from bot.rules.policy.validation import validated
from bot.wire.checkin import Checkin, MachineReport

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
POLICY = Policy()
RESTS: dict[str, Any] = {"cpu_percent": Decimal("0.4"), "network_kb_s": 1, "logins": 0}
CPU: dict[str, Any] = {"cpu_percent": Decimal(2)}
NETWORK: dict[str, Any] = {"network_kb_s": 5}
LOGIN: dict[str, Any] = {"logins": 1}


def reported(minutes: int, policy: Policy = POLICY, busy_at: int = -1, **busy: Any) -> NodeStatus:
    """What is kept after a report each minute with resting GPUs, of which one minute was otherwise."""
    found = NodeStatus()
    for minute in range(minutes + 1):
        machine = MachineReport(**RESTS | (busy if busy_at in (minute, -1) else {}))
        now = START + timedelta(minutes=minute)
        found = after_checkin(found, Checkin(seq=minute + 1, utilisation=(Decimal(0),), machine=machine), policy, now)
    return found


def ends(workload: str, minutes: int, *, policy: Policy = POLICY, busy_at: int = -1, **busy: Any) -> str:
    """The warning after so many minutes of such reports; "" without one."""
    watched = Watched(workload, START - timedelta(hours=1), START - timedelta(hours=1))
    found = reported(minutes, policy, busy_at, **busy)
    end = early_end(policy, found, watched, START + timedelta(minutes=minutes))
    return end.sentence if end is not None else ""


@pytest.mark.parametrize(
    ("workload", "limit", "kept_by"),
    [
        ("training", 30, ()),
        ("moe", 30, ()),
        ("notebook", 30, (CPU, LOGIN)),
        ("Jupyter", 30, (CPU, LOGIN)),
        ("serving", 60, (NETWORK,)),
        ("inference", 60, (NETWORK,)),
        ("data", 30, (CPU, NETWORK)),
        ("data-preparation", 30, (CPU, NETWORK)),
    ],
)
def test_each_kind_of_work_is_kept_by_its_own_signals(
    workload: str, limit: int, kept_by: tuple[dict[str, Any], ...]
) -> None:
    assert not ends(workload, limit - 1)
    assert ends(workload, limit)
    for busy in (CPU, NETWORK, LOGIN):
        assert bool(ends(workload, limit, **busy)) is (busy not in kept_by), busy


def test_the_time_begins_when_the_last_of_them_rests() -> None:
    assert not ends("notebook", 49, busy_at=19, **LOGIN)
    assert "with no open login, since 12:20 UTC" in ends("notebook", 50, busy_at=19, **LOGIN)


def test_a_busy_gpu_keeps_every_machine() -> None:
    found = reported(60)
    later = after_checkin(found, Checkin(seq=99, utilisation=(Decimal(50),)), POLICY, START + timedelta(minutes=61))
    watched = Watched("data", START, START)
    assert early_end(POLICY, later, watched, START + timedelta(minutes=61)) is None


def test_the_warning_says_which_signals_decided() -> None:
    assert ends("training", 30) == (
        "Its GPUs have been below 5% since 12:00 UTC. The limit for training is 30 minutes. "
        "Last report: GPU 0%, CPU 0%, network 1 kB/s, no open login."
    )
    assert ends("notebook", 30).startswith(
        "Its GPUs have been below 5% and its CPUs below 2%, with no open login, since 12:00 UTC. "
        "The limit for notebook is 30 minutes."
    )
    assert ends("serving", 60).startswith("Its GPUs have been below 5% and its network below 5 kB/s since 12:00 UTC.")
    assert ends("data", 30).startswith(
        "Its GPUs have been below 5%, its CPUs below 2% and its network below 5 kB/s since 12:00 UTC."
    )


def test_what_is_not_reported_keeps_no_machine_and_is_not_named() -> None:
    silent: dict[str, Any] = dict.fromkeys(RESTS)
    assert ends("notebook", 30, **silent).startswith("Its GPUs have been below 5% since 12:00 UTC.")
    assert [is_busy(one, MachineReport(), POLICY) for one in IdleSignal] == [None, None, None]
    assert [is_busy(one, None, POLICY) for one in IdleSignal] == [None, None, None]
    assert quiet_after({}, None, POLICY, START) == {}


def test_a_team_sets_its_own() -> None:
    policy = Policy(
        idle_also_needs={"default": ("login",), "serve": ("cpu",), "training": ()},
        idle_cpu_below_percent=Decimal(50),
    )
    assert validated(policy) is policy
    assert signals(policy, "anything") == (IdleSignal.LOGIN,)
    assert signals(policy, "serve") == (IdleSignal.CPU,)
    assert signals(policy, "serving") == (IdleSignal.LOGIN,)
    assert ends("serve", 60, policy=policy, cpu_percent=Decimal(49))
    assert not ends("serve", 60, policy=policy, cpu_percent=Decimal(50))
    assert signals(Policy(idle_also_needs={}), "training") == ()


def test_an_unknown_signal_is_refused_with_a_right_one() -> None:
    with pytest.raises(ValueError, match=r"idle_also_needs lists cpu, network and login"):
        validated(Policy(idle_also_needs={"notebook": ("disk",)}))
