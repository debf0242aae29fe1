"""Check-ins as rules: what is believed, what a node is asked, when it ends early, and what people read of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.nodes.checkins import (
    NodeStatus,
    Watched,
    after_checkin,
    early_end,
    grace_s,
    instruction,
    is_advancing,
    is_replay,
    listener_problem,
    node_line,
    paused,
    progress,
)
from bot.rules.policy.policy import Policy
from bot.wire.checkin import (
    Checkin,
    Checkpoint,
    MachineReport,
    NodeInstruction,
    QueueCounts,
    StartupStep,
    StepOutcome,
    Work,
)
from ledger.kernel.end_reason import EndReason, Grace
from ledger.kernel.states import SessionState

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BUSY = (Decimal(0), Decimal(91))
IDLE = (Decimal(1), Decimal(4))
POLICY = Policy()


def watched(**changes: object) -> Watched:
    long_ago = NOW - timedelta(hours=9)
    return replace(Watched("training", long_ago, long_ago), **changes)  # type: ignore[arg-type]


def test_only_a_greater_number_is_new() -> None:
    assert [is_replay(5, seq) for seq in (4, 5, 6)] == [True, True, False]


def test_idle_time_begins_when_no_gpu_works_and_a_node_knows_it_better_within_what_can_be_true() -> None:
    first = after_checkin(NodeStatus(), Checkin(seq=1, utilisation=IDLE, idle_since=NOW - 50 * MINUTE), POLICY, NOW)
    assert first.idle_since == NOW  # Nobody heard it before, so its word about then is not taken.
    later = after_checkin(first, Checkin(seq=2, utilisation=IDLE), POLICY, NOW + MINUTE)
    assert later.idle_since == NOW
    worked_between = after_checkin(
        later, Checkin(seq=3, utilisation=IDLE, idle_since=NOW + 90 * MINUTE / 60), POLICY, NOW + 2 * MINUTE
    )
    assert worked_between.idle_since == NOW + 90 * MINUTE / 60
    assert (
        after_checkin(
            later, Checkin(seq=3, utilisation=IDLE, idle_since=NOW + 9 * MINUTE), POLICY, NOW + MINUTE
        ).idle_since
        == NOW + MINUTE
    )
    assert after_checkin(later, Checkin(seq=3, utilisation=BUSY), POLICY, NOW + MINUTE).idle_since is None
    unmeasured = after_checkin(later, Checkin(seq=3), POLICY, NOW + MINUTE)
    assert unmeasured.idle_since is None
    busy = after_checkin(NodeStatus(), Checkin(seq=1, utilisation=BUSY), POLICY, NOW)
    idle = after_checkin(busy, Checkin(seq=2, utilisation=IDLE, idle_since=NOW + MINUTE / 2), POLICY, NOW + MINUTE)
    assert idle.idle_since == NOW + MINUTE / 2


def test_a_job_is_over_since_it_was_first_said_and_checkpoints_are_not_of_the_future() -> None:
    done = after_checkin(
        NodeStatus(),
        Checkin(seq=1, utilisation=BUSY, job=Work.DONE, checkpoint=Checkpoint(9, NOW + MINUTE)),
        POLICY,
        NOW,
    )
    assert (done.work_over_at, done.checkpoint_at, done.checkpoint_step) == (NOW, NOW, 9)
    assert (
        after_checkin(done, Checkin(seq=2, utilisation=BUSY, job=Work.DONE), POLICY, NOW + MINUTE).work_over_at == NOW
    )
    assert (
        after_checkin(done, Checkin(seq=2, utilisation=BUSY, job=Work.FAILED), POLICY, NOW + MINUTE).work_over_at
        == NOW + MINUTE
    )
    assert after_checkin(done, Checkin(seq=2, utilisation=BUSY), POLICY, NOW + MINUTE).work_over_at is None


def test_the_eta_follows_the_jobs_own_speed_and_starts_anew_with_it() -> None:
    first = after_checkin(NodeStatus(), Checkin(seq=1, utilisation=BUSY, step=100, target_step=1000), POLICY, NOW)
    assert progress(first, Decimal(2), NOW) is None  # One step is no speed.
    second = after_checkin(
        first, Checkin(seq=2, utilisation=BUSY, step=400, target_step=1000), POLICY, NOW + 10 * MINUTE
    )
    found = progress(second, Decimal(3), NOW + 10 * MINUTE)
    assert found is not None
    assert found.eta == NOW + 30 * MINUTE
    assert found.cost_to_finish_usd == Decimal("1.00")
    restarted = after_checkin(
        second, Checkin(seq=3, utilisation=BUSY, step=0, target_step=1000), POLICY, NOW + 11 * MINUTE
    )
    assert (restarted.step_from, restarted.step_from_at) == (0, NOW + 11 * MINUTE)
    assert progress(replace(second, work=Work.DONE), Decimal(3), NOW) is None
    assert progress(replace(second, target_step=None), Decimal(3), NOW) is None
    over = progress(replace(second, target_step=10), Decimal(3), NOW + 20 * MINUTE)
    assert over is not None
    assert (over.eta, over.cost_to_finish_usd) == (NOW + 20 * MINUTE, Decimal(0))


@pytest.mark.parametrize(
    ("state", "wanted", "left", "extra", "asked"),
    [
        (SessionState.RUNNING, None, 60, (), ()),
        (SessionState.RUNNING, None, 10, (), (NodeInstruction.SAVE, NodeInstruction.UPLOAD)),
        (SessionState.RUNNING, None, None, ("upload",), (NodeInstruction.UPLOAD,)),
        (SessionState.RUNNING, "stop", 60, (), (NodeInstruction.SAVE, NodeInstruction.UPLOAD, NodeInstruction.PAUSE)),
        (SessionState.TERMINATING, None, 60, (), (NodeInstruction.SAVE, NodeInstruction.UPLOAD, NodeInstruction.STOP)),
    ],
)
def test_what_a_node_is_asked(
    state: SessionState,
    wanted: str | None,
    left: int | None,
    extra: tuple[str, ...],
    asked: tuple[NodeInstruction, ...],
) -> None:
    end = None if left is None else NOW + left * MINUTE
    assert instruction(state, wanted, end, NOW, extra) == asked


def test_a_machine_without_an_agent_is_exempt() -> None:
    assert early_end(POLICY, NodeStatus(), watched(), NOW) is None
    assert "can't end early for being idle or unresponsive" in node_line(NodeStatus(), NOW)
    assert node_line(None, NOW) == node_line(NodeStatus(), NOW)


@pytest.mark.parametrize(("workload", "minutes"), [("training", 30), ("serving", 60), ("BATCH", 15), ("moe", 30)])
def test_idle_ends_depend_on_the_kind_of_work(workload: str, minutes: int) -> None:
    found = NodeStatus(at=NOW, idle_since=NOW - minutes * MINUTE)
    end = early_end(POLICY, found, watched(workload=workload), NOW)
    assert end is not None
    assert (end.code, end.since, end.grace_s) == ("idle", NOW - minutes * MINUTE, 600)
    assert early_end(POLICY, found, watched(workload=workload), NOW - timedelta(seconds=1)) is None
    assert early_end(Policy(end_when_idle=False), found, watched(workload=workload), NOW) is None


def test_silence_is_counted_from_when_somebody_listened_and_the_machine_was_up() -> None:
    quiet = NodeStatus(at=NOW - 15 * MINUTE)
    end = early_end(POLICY, quiet, watched(), NOW)
    assert end is not None
    assert (end.code, end.grace_s) == ("no_heartbeat", 300)
    assert "11:45 UTC" in end.sentence
    assert early_end(POLICY, quiet, watched(), NOW - MINUTE) is None
    assert early_end(POLICY, quiet, watched(listening_at=NOW - 14 * MINUTE), NOW) is None
    assert early_end(POLICY, quiet, watched(ready_at=NOW - 14 * MINUTE), NOW) is None
    assert early_end(POLICY, quiet, watched(kept_running_until=NOW + MINUTE), NOW) is None
    assert early_end(POLICY, quiet, watched(kept_running_until=NOW), NOW) is not None
    assert early_end(Policy(end_when_unresponsive=False), quiet, watched(), NOW) is None


def test_a_job_that_is_over_ends_its_session_unless_the_machine_was_started_again() -> None:
    for work, code in ((Work.DONE, "completed"), (Work.FAILED, "work_failed")):
        end = early_end(POLICY, NodeStatus(at=NOW, work=work, work_over_at=NOW), watched(), NOW)
        assert end is not None
        assert (end.code, end.grace_s) == (code, 120)
    over = NodeStatus(at=NOW, work=Work.DONE, work_over_at=NOW - MINUTE)
    assert early_end(POLICY, over, watched(ready_at=NOW), NOW) is None


def test_many_that_fall_silent_at_once_mean_that_nobody_hears_them() -> None:
    assert listener_problem(10, 3) == ""
    assert listener_problem(10, 4) == ""
    assert listener_problem(7, 4) == "4 of 7 nodes stopped reporting at once, so no session ends for that."


def test_what_a_status_says() -> None:
    found = NodeStatus(
        at=NOW - timedelta(seconds=40),
        utilisation=(Decimal("91.6"), Decimal(0)),
        step=12000,
        target_step=50000,
        tokens_per_s=Decimal(4200),
        queue=QueueCounts(waiting=4, running=1, done=7),
        idle_since=NOW - MINUTE,
    )
    assert node_line(found, NOW) == (
        "Its agent reported 40 seconds ago; GPUs at 92%, 0%; step 12,000 of 50,000; queue 7/12 done; 4,200 tokens/s; "
        "idle since 11:59 UTC."
    )
    failing = NodeStatus(at=NOW, queue=QueueCounts(done=1000, failed=2))
    assert node_line(failing, NOW) == "Its agent reported 0 seconds ago; queue 1,000/1,002 done, 2 failed."
    bare = NodeStatus(at=NOW - 9 * MINUTE, step=3)
    assert node_line(bare, NOW) == "Its agent reported 9 minutes ago; step 3."
    assert node_line(NodeStatus(at=NOW), NOW) == "Its agent reported 0 seconds ago."


def test_every_grace_has_its_seconds_in_the_policy() -> None:
    seconds = {grace: grace_s(POLICY, grace) for grace in Grace}
    assert seconds == {Grace.NONE: 0, Grace.DONE: 120, Grace.SILENT: 300, Grace.IDLE: 600}


@pytest.mark.parametrize("work", [Work.QUEUED, Work.SAVING, Work.PAUSED])
def test_what_a_job_does_besides_running_is_said(work: Work) -> None:
    found = after_checkin(NodeStatus(), Checkin(v=2, seq=1, job=work), POLICY, NOW)
    assert f"the job is {work}" in node_line(found, NOW)
    assert found.work_over_at is None
    assert not work.is_over


def test_an_idle_end_says_what_the_agent_reported_last() -> None:
    def sentence(*utilisation: int, machine: MachineReport | None = None) -> str:
        percent = tuple(Decimal(one) for one in utilisation)
        end = early_end(
            POLICY, NodeStatus(1, NOW, NOW - 40 * MINUTE, utilisation=percent, machine=machine), watched(), NOW
        )
        assert end is not None
        return end.sentence.partition("30 minutes.")[2]

    seen = MachineReport(cpu_percent=Decimal(3), logins=1, last_login_at=NOW - 168 * MINUTE)
    assert sentence(0, 0, machine=seen) == (
        " Last report: GPU 0%, CPU 3%, 1 open login, last login 2026-03-02 09:12 UTC."
    )
    assert sentence(0, 4) == " Last report: GPU 0% to 4%."
    assert sentence() == ""


def test_a_queue_counts_until_the_next_report_without_one() -> None:
    counts = QueueCounts(waiting=2)
    first = after_checkin(NodeStatus(), Checkin(v=2, seq=1, queue=counts), POLICY, NOW)
    assert first.queue == counts
    assert after_checkin(first, Checkin(seq=2), POLICY, NOW).queue is None


def test_a_job_and_a_start_up_are_work() -> None:
    idle = NodeStatus(at=NOW, idle_since=NOW - 600 * MINUTE, utilisation=(Decimal(0),))
    end = early_end(POLICY, idle, watched(), NOW)
    assert end is not None
    assert end.code is EndReason.IDLE
    assert early_end(POLICY, idle, watched(has_running_job=True), NOW) is None
    written = early_end(POLICY, idle, watched(has_running_job=True, idle_s=3600), NOW)
    assert written is not None
    assert "The limit for this session is 1 hour." in written.sentence
    for work in (Work.QUEUED, Work.SAVING):
        assert early_end(POLICY, replace(idle, work=work), watched(), NOW) is None
    steps = [StartupStep("file-1", StepOutcome.DONE), StartupStep("file-2", StepOutcome.RUNNING)]
    copying = replace(idle, machine=MachineReport(steps=tuple(steps)))
    assert early_end(POLICY, copying, watched(idle_s=3600), NOW) is None
    failed = MachineReport(steps=(StartupStep("file-1", StepOutcome.FAILED), StartupStep("run", StepOutcome.WAITING)))
    assert early_end(POLICY, replace(idle, machine=failed), watched(), NOW) is not None


def test_the_lowest_step_counts_from_when_the_start_up_ran_the_command() -> None:
    runs = MachineReport(steps=(StartupStep("run", StepOutcome.DONE),))
    waits = MachineReport(steps=(StartupStep("run", StepOutcome.RUNNING),))
    before = after_checkin(NodeStatus(), Checkin(seq=1, step=7, machine=waits), POLICY, NOW)
    assert before.lowest_step is None
    first = after_checkin(before, Checkin(seq=2, step=9, machine=runs), POLICY, NOW)
    assert first.lowest_step == 9
    assert after_checkin(first, Checkin(seq=3, step=30, machine=runs), POLICY, NOW).lowest_step == 9
    assert after_checkin(first, Checkin(seq=3, machine=runs), POLICY, NOW).lowest_step == 9


def test_a_replaced_machine_pauses_and_saves_nothing() -> None:
    every = tuple(NodeInstruction)
    assert paused(every) == (NodeInstruction.PAUSE, NodeInstruction.STOP)
    assert paused(()) == (NodeInstruction.PAUSE,)


def test_a_job_advances_while_its_reports_are_new_and_its_steps_rise() -> None:
    status = NodeStatus(at=NOW, work=Work.RUNNING, step=12, step_from=10)
    assert is_advancing(status, NOW - MINUTE, NOW)
    for still in (
        replace(status, at=None),
        replace(status, at=NOW - MINUTE),
        replace(status, step=10),
        replace(status, step_from=None),
        replace(status, work=Work.PAUSED),
    ):
        assert not is_advancing(still, NOW - MINUTE, NOW)
    assert not is_advancing(status, NOW - MINUTE, NOW + 60 * MINUTE)
