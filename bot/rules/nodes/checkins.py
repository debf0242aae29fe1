"""Judge an agent's check-ins: how its work is doing, what to instruct it, and when to end an idle instance.

A check-in speaks against *absent* and never extends anything. An instance that never checked in has no agent, so
neither silence nor idling ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from bot.rules.nodes.idleness import QuietSince, all_quiet_since, idle_said, quiet_after
from bot.rules.nodes.machine_report import RUN, activity_words, known_by, startup_changed
from bot.rules.nodes.reported_commands import queue_words, taken_after, twentieths
from bot.rules.nodes.steady_rate import with_rate
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import hours, plural
from bot.rules.values.serving import SERVING, is_serving
from bot.wire.checkin import (
    INTERVAL_S,
    Checkin,
    Checkpoint,
    MachineReport,
    NodeInstruction,
    QueueCounts,
    StepOutcome,
    Work,
)
from ledger.kernel import money
from ledger.kernel.end_reason import EndReason, Grace
from ledger.kernel.states import SessionState

#: An agent whose last report is older says nothing about what its job does now.
REPORTS_WITHIN: Final = timedelta(seconds=3 * INTERVAL_S)
#: Within this time before its end, a node is instructed to save.
SAVE_BEFORE: Final = timedelta(minutes=10)
#: Of nodes that report, this many must be silent at once, and half of all, to count as our own failure.
DEAF_LEAST: Final = 4


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Hold what is kept of a node's check-ins. `at` is the last one, None before the first."""

    seq: int = 0
    at: datetime | None = None
    idle_since: datetime | None = None
    work: Work = Work.RUNNING
    work_over_at: datetime | None = None
    job_exit_code: int | None = None
    job_attempt: int = 1
    utilisation: tuple[Decimal, ...] = ()
    step: int | None = None
    target_step: int | None = None
    #: The step and the time from which the job's speed is calculated.
    step_from: int | None = None
    step_from_at: datetime | None = None
    #: The lowest step that it reported since the start-up started its command; None before that.
    lowest_step: int | None = None
    tokens_per_s: Decimal | None = None
    checkpoint_step: int | None = None
    checkpoint_at: datetime | None = None
    queue: QueueCounts | None = None
    #: How many results of its queue's commands are stored, counted in the order in which it reports them.
    results_taken: int = 0
    machine: MachineReport | None = None
    #: The newest rates of its job, in tokens per second, the oldest first.
    rates: tuple[Decimal, ...] = ()
    #: Since when its CPUs and network rest and nobody is logged in; what is busy or not reported is left out.
    quiet_since: QuietSince = field(default_factory=dict)


def is_replay(seen_seq: int, seq: int) -> bool:
    """Whether a check-in, or a later one, was received before."""
    return seq <= seen_seq


def after_checkin(before: NodeStatus, report: Checkin, policy: Policy, now: datetime) -> NodeStatus:
    """Update a node's status by one more check-in. Times that a node reports are cut to what can be true."""
    busy = any(one >= policy.idle_below_percent for one in report.utilisation) or not report.utilisation
    idle_since = None
    if not busy:
        idle_since = before.idle_since or now
        if report.idle_since is not None:
            # Later than what is known, when it worked between two check-ins; never before the last busy one.
            least = before.idle_since or before.at or now
            idle_since = min(max(report.idle_since, least), now)
    over_at = None
    if report.job.is_over:
        over_at = before.work_over_at if before.work is report.job else now
    machine = known_by(report.machine, now) if report.machine else before.machine
    saved = report.checkpoint or Checkpoint()
    again = report.step is None or before.step is None or report.step < before.step
    return NodeStatus(
        seq=report.seq,
        at=now,
        idle_since=idle_since,
        work=report.job,
        work_over_at=over_at,
        job_exit_code=report.job_exit_code if report.job.is_over else None,
        job_attempt=report.job_attempt or 1,
        utilisation=report.utilisation,
        step=report.step,
        target_step=report.target_step,
        step_from=report.step if again else before.step_from,
        step_from_at=now if again else before.step_from_at,
        lowest_step=_lowest_step(before.lowest_step, report.step, machine),
        tokens_per_s=report.tokens_per_s,
        checkpoint_step=saved.step,
        checkpoint_at=min(saved.at, now) if saved.at else None,
        queue=report.queue,
        results_taken=taken_after(before.results_taken, report.results),
        machine=machine,
        rates=with_rate(
            before.rates,
            report.tokens_per_s,
            is_running=report.job is Work.RUNNING,
            is_new_job=report.step is not None and before.step is not None and report.step < before.step,
            is_stuck=report.step is not None and report.step == before.step,
        ),
        quiet_since=quiet_after(before.quiet_since, machine, policy, now),
    )


def _lowest_step(before: int | None, step: int | None, machine: MachineReport | None) -> int | None:
    """Return the lowest step of a command that the start-up has started."""
    if step is None or machine is None or not machine.is_done(RUN):
        return before
    return step if before is None else min(before, step)


def shows_progress(before: NodeStatus, after: NodeStatus) -> bool:
    """Whether cards have something new to say: of the job, its attempt, its queue, or a step of the start-up.

    A queue is shown at every twentieth of its commands, so that a long one stays within Slack's limits.
    """
    if before.work is not after.work or before.job_attempt != after.job_attempt:
        return True
    was, now_is = (twentieths(found.queue) if found.queue is not None else (0, 0) for found in (before, after))
    return was != now_is or startup_changed(before.machine, after.machine)


def instruction(
    state: SessionState, wanted: str | None, ends_at: datetime | None, now: datetime, extra: Sequence[str] = ()
) -> tuple[NodeInstruction, ...]:
    """List what a node is instructed to do: by its session's state, a stop order, its end, and a checkpoint check."""
    found = {NodeInstruction(one) for one in extra}
    if state in (SessionState.TERMINATING, SessionState.TERMINATED, SessionState.FAILED):
        found |= {NodeInstruction.SAVE, NodeInstruction.UPLOAD, NodeInstruction.STOP}
    elif wanted == "stop":
        found |= {NodeInstruction.SAVE, NodeInstruction.UPLOAD, NodeInstruction.PAUSE}
    elif ends_at is not None and ends_at - now <= SAVE_BEFORE:
        found |= {NodeInstruction.SAVE, NodeInstruction.UPLOAD}
    return tuple(one for one in NodeInstruction if one in found)


def paused(normal: Sequence[NodeInstruction]) -> tuple[NodeInstruction, ...]:
    """List what a node is instructed to do whose run continues on another machine: it must not train, nor save."""
    return (NodeInstruction.PAUSE, *(one for one in normal if one is NodeInstruction.STOP))


def is_advancing(found: NodeStatus, since: datetime, now: datetime) -> bool:
    """Whether a job still reports steps that rise, although its cloud has shown trouble since `since`."""
    if found.at is None or found.at <= since or now - found.at > REPORTS_WITHIN:
        return False
    rises = found.step is not None and found.step_from is not None and found.step > found.step_from
    return rises and found.work in (Work.RUNNING, Work.SAVING)


class Progress(NamedTuple):
    """Hold how far a job is: when it is done at its own speed, and what it costs until then."""

    eta: datetime
    cost_to_finish_usd: Decimal


def progress(found: NodeStatus, price_usd_h: Decimal, now: datetime) -> Progress | None:
    """Forecast a job's end and cost; None without a target, without a second step, or for a finished job."""
    if found.target_step is None or found.step is None or found.step_from is None or found.step_from_at is None:
        return None
    if found.at is None or found.work not in (Work.RUNNING, Work.SAVING) or found.step <= found.step_from:
        return None
    took_s = (found.at - found.step_from_at).total_seconds()
    left_s = max(found.target_step - found.step, 0) * took_s / (found.step - found.step_from)
    most_s = timedelta(days=3650).total_seconds()
    eta = max(found.at + timedelta(seconds=min(left_s, most_s)), now)
    left_h = Decimal(int((eta - now).total_seconds())) / 3600
    return Progress(eta, money.cents_even(left_h * price_usd_h))


class EarlyEnd(NamedTuple):
    """Hold an end before the approved one: its code, since when its reason holds, the sentence, and its grace."""

    code: EndReason
    since: datetime
    sentence: str
    grace_s: int


@dataclass(frozen=True, slots=True)
class Watched:
    """Describe a session whose node reports. It is ready since `ready_at`; check-ins are received since `listening_at`.

    Time before that does not count: while nothing received check-ins, nobody knows whether it was silent or idle.
    """

    workload: str
    ready_at: datetime
    listening_at: datetime
    kept_running_until: datetime | None = None
    #: When the end of its job was recorded. A short job ends before its machine is ready, and counts from here on.
    job_ended_at: datetime | None = None
    #: Whether a command that GPU Shopper started has not exited: that is work, even while its GPUs rest.
    has_running_job: bool = False
    #: For how many seconds it may idle, as its requester wrote; None: as the policy says.
    idle_s: int | None = None


def early_end(policy: Policy, found: NodeStatus, watched: Watched, now: datetime) -> EarlyEnd | None:
    """Say why a session ends before its time, by its node's check-ins; None while there is no reason."""
    if found.at is None or (watched.kept_running_until is not None and now < watched.kept_running_until):
        return None
    over_at = found.work_over_at and max(found.work_over_at, watched.job_ended_at or found.work_over_at)
    if over_at is not None and over_at >= watched.ready_at:
        if found.work is Work.FAILED:
            return _cut(policy, EndReason.WORK_FAILED, over_at, "Its job ended with an error.")
        return _cut(policy, EndReason.COMPLETED, over_at, "Its job is done.")
    known_from = max(watched.ready_at, watched.listening_at)
    quiet_from = max(found.at, known_from)
    if policy.end_when_unresponsive and now - quiet_from >= timedelta(seconds=policy.unresponsive_s):
        said = f"Its agent last reported at {found.at:%H:%M} UTC. It should report every minute."
        return _cut(policy, EndReason.NO_HEARTBEAT, quiet_from, said)
    if policy.end_when_idle and found.idle_since is not None:
        return _idle(policy, found, found.idle_since, watched, known_from, now)
    return None


def _idle(
    policy: Policy, found: NodeStatus, gpus_since: datetime, watched: Watched, known_from: datetime, now: datetime
) -> EarlyEnd | None:
    """Say that everything that counts for its work has rested for too long; None while it has not."""
    if is_busy_otherwise(found) or (watched.has_running_job and watched.idle_s is None):
        return None
    work = watched.workload
    quiet_from = all_quiet_since(policy, work, found.quiet_since, found.machine, gpus_since)
    most_s = watched.idle_s or idle_limit_s(policy.idle_s, work)
    if quiet_from is None or now - max(quiet_from, known_from) < timedelta(seconds=most_s):
        return None
    idle_from = max(quiet_from, known_from)
    said = (
        f"{idle_said(policy, work, found.quiet_since)} since {idle_from:%H:%M} UTC. "
        f"The limit for {'this session' if watched.idle_s else work or 'its work'} is {hours(Decimal(most_s) / 3600)}."
        f"{_last_report(found)}"
    )
    return _cut(policy, EndReason.IDLE, idle_from, said)


def is_busy_otherwise(found: NodeStatus) -> bool:
    """Whether a machine whose GPUs rest starts up, copies files, waits for its turn, or saves."""
    steps = found.machine.steps if found.machine is not None else ()
    failed = any(step.state is StepOutcome.FAILED for step in steps)
    starting = not failed and any(step.state in (StepOutcome.WAITING, StepOutcome.RUNNING) for step in steps)
    return starting or found.work in (Work.QUEUED, Work.SAVING)


def _last_report(found: NodeStatus) -> str:
    """Say what the agent reported last, so that people see why the machine counts as idle."""
    low, high = min(found.utilisation, default=None), max(found.utilisation, default=None)
    gpus = [] if low is None or high is None else [f"GPU {low:.0f}%" + (f" to {high:.0f}%" if high > low else "")]
    said = gpus + activity_words(found.machine)
    return f" Last report: {', '.join(said)}." if said else ""


def _cut(policy: Policy, reason: EndReason, since: datetime, sentence: str) -> EarlyEnd:
    """Make the end with the grace that the policy gives it."""
    return EarlyEnd(reason, since, sentence, grace_s(policy, reason.grace))


def grace_s(policy: Policy, grace: Grace) -> int:
    """Return the seconds between the notification of an end and its order."""
    seconds = {
        Grace.NONE: 0,
        Grace.DONE: policy.done_grace_s,
        Grace.SILENT: policy.unresponsive_grace_s,
        Grace.IDLE: policy.idle_grace_s,
    }
    return seconds[grace]


def idle_limit_s(limits: Mapping[str, int], workload: str) -> int:
    """Return the seconds that a machine may idle, by the kind of its work."""
    limit = limits.get(workload.lower(), limits.get(SERVING) if is_serving(workload) else None)
    return limits["default"] if limit is None else limit


def listener_problem(reporting: int, silent: int) -> str:
    """Say why so many silent nodes mean that their check-ins do not arrive; "" when they are few.

    Then they are not taken for dead.
    """
    if silent < DEAF_LEAST or silent * 2 < reporting:
        return ""
    return f"{silent} of {plural(reporting, 'node')} stopped reporting at once, so no session ends for that."


def node_line(found: NodeStatus | None, now: datetime) -> str:
    """Describe an instance's agent for every status, in one sentence."""
    if found is None or found.at is None:
        return "No agent reports from it, so it can't end early for being idle or unresponsive."
    age_s = max(int((now - found.at).total_seconds()), 0)
    age = plural(age_s, "second") if age_s < 2 * INTERVAL_S else plural(age_s // 60, "minute")
    said = [f"Its agent reported {age} ago"]
    if found.utilisation:
        said.append("GPUs at " + ", ".join(f"{one:.0f}%" for one in found.utilisation))
    if found.work in (Work.QUEUED, Work.SAVING, Work.PAUSED):
        said.append(f"the job is {found.work}")
    if found.step is not None:
        said.append(f"step {found.step:,}" + (f" of {found.target_step:,}" if found.target_step else ""))
    if found.queue is not None:
        said.append(queue_words(found.queue))
    if found.tokens_per_s is not None:
        said.append(f"{found.tokens_per_s:,.0f} tokens/s")
    if found.idle_since is not None:
        said.append(f"idle since {found.idle_since:%H:%M} UTC")
    return "; ".join(said) + "."
