"""Show the progress of an approved request, one line per step, and the reply in its thread when its state changes.

An instance exists only once its cloud confirmed it. An edit of a message notifies nobody, a reply does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from bot.rules.instances.checked_gpus import checked_gpus
from bot.rules.sessions.running_time import seconds_run
from bot.rules.values.phrases import brief
from bot.services.nodes.checkins import SHOWS_STARTUP
from bot.services.nodes.job_results import job_status_of
from bot.services.nodes.views import agent_view
from bot.services.sessions import session_state
from bot.slack.blocks.approvals import machine_title
from bot.slack.blocks.elements import SENTENCE_MAX, Message, code, dollars, person, safe, when
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.job_state import JobState
from ledger.kernel.states import ENDED_SESSION, InstanceState, RequestState, SessionState
from ledger.models import Event, Instance, Session
from ledger.queries.views import RequestView, SessionView
from providers.cloud_names import cloud_title

DONE, WAITING, BAD, WARN = ":white_check_mark:", ":hourglass_flowing_sand:", ":x:", ":warning:"

PAUSED = ":double_vertical_bar:"
#: Lines about a stop and the start after it, the newest ones.
STOPS_SHOWN = 4
_I = InstanceState


@dataclass(frozen=True, slots=True)
class InstanceTimes:
    """When an instance was confirmed and ready for the first time, and `(stop, start)` of each stop since.

    Its columns have the times of the newest start. A start that has not happened yet is None.
    """

    live_at: datetime | None
    ready_at: datetime | None
    stops: tuple[tuple[datetime, datetime | None], ...] = ()


def times_of(row: Instance, moves: Sequence[Event]) -> InstanceTimes:
    """Find these times in the journal, of which `moves` are the moves of the session and its instances in order."""
    own, stops = [one for one in moves if one.subject == row.id], list[tuple[datetime, datetime | None]]()
    for one in own:
        if one.after == _I.STOPPED:
            stops.append((one.at, None))
        elif one.after == _I.LIVE and stops:
            stops[-1] = (stops[-1][0], one.at)
    live_at = next((one.at for one in own if one.after == _I.LIVE), row.live_at)
    ready_at = row.reachable_at
    if stops:  # Only what was ready is stopped, so its session ran before.
        ran = (one.at for one in moves if one.subject == row.session_id and one.after == SessionState.RUNNING)
        ready_at = next((at for at in ran if live_at is None or at >= live_at), ready_at)
    return InstanceTimes(live_at, ready_at, tuple(stops))


def lines(
    view: RequestView,
    cost_usd: Decimal | None = None,
    saved_usd: Decimal = Decimal(0),
    moves: Sequence[Event] = (),
    job: str = "",
    now: datetime | None = None,
) -> list[str]:
    """List the steps of every instance of the request's session, then the session's state, as mrkdwn.

    `cost_usd` is what the session has cost, `saved_usd` what ending it early saved. `moves` are the moves of the
    session and its instances in the journal. `job` says how far its job is, or its start-up.
    """
    if view.session is None:
        return []
    machines = view.machines[-4:]
    times = [times_of(row, moves) for row in machines]
    # The reason of the end stands once, in the session's line below.
    why = view.session.end_reason if view.session.state in ENDED_SESSION else ""
    # A card has room for one of both. The GPUs are those of its title, and `/gpu status` has them, too.
    steps = [
        line for row, one in zip(machines, times, strict=True) for line in _instance(row, one, why, names_gpus=not job)
    ]
    if view.grace is not None and view.grace.instance_id in {row.id for row in view.instances}:
        steps.append(f"{WARN} {session_state.grace_line(view.grace, now or view.grace.since, when(view.grace.until))}")
    steps += _session(view.session, times[-1] if times else None, cost_usd, saved_usd)
    return [*steps, f":gear: {safe(job, 120)}."] if job else steps


def job_line(session: SessionView | None, now: datetime | None) -> str:
    """Say in one line how far the job is, or its start-up before that; "" where there is neither."""
    if session is None or now is None:
        return ""
    job, is_live = job_status_of(session), session.session.state in SHOWS_STARTUP
    if job is not None and job.state is not JobState.QUEUED and not (is_live and job.failed_step):
        return f"Job: {job.line}"
    return agent_view(session, now).startup if is_live else ""


def headline(view: RequestView) -> str:
    """Name the state in a few words, for the line under the title and for screen readers."""
    session = view.session
    machines = view.machines
    newest = machines[-1] if machines else None
    if newest is not None and newest.node_rank is not None:  # A set is as far as the machine that is behind.
        newest = next((row for row in machines if row.reachable_at is None), newest)
    if session is None:
        return "Approved"
    if session.state in (SessionState.QUEUED, SessionState.PROVISIONING):
        return _placing(newest)
    if (
        session.state is SessionState.RUNNING
        and newest is not None
        and (wrong := session_state.problem(newest, view.grace))
    ):
        return f"{wrong[0].upper()}{wrong[1:]}"
    if (
        session.state is SessionState.TERMINATING
        and newest is not None
        and newest.checkpoint_step == CheckpointStep.HELD
    ):
        return "Stopped, disk kept"
    return {
        SessionState.RUNNING: "Running",
        SessionState.STOPPED: "Stopped",
        SessionState.TERMINATING: "Ending",
        SessionState.TERMINATED: "Ended",
        SessionState.FAILED: "Failed",
    }[session.state]


def _placing(instance: Instance | None) -> str:
    if instance is None:
        return "Approved, waiting to launch"
    if instance.state is _I.UNKNOWN:
        return "Outcome unknown, not provisioned"
    if instance.state is _I.LIVE:
        return "Reachable" if instance.reachable_at else "Booting"
    return "Launching" if instance.state in (_I.READY, _I.SENDING) else "Trying the next offer"


def _instance(row: Instance, times: InstanceTimes, why: str, *, names_gpus: bool) -> list[str]:
    cloud = safe(cloud_title(row.cloud), 40)
    again = f" (attempt {row.n})" if row.n > 1 else ""
    again = f" (machine {row.node_rank + 1})" if row.node_rank is not None else again
    if row.state is _I.READY and row.limited_until is not None:
        return [f"{WAITING} {cloud} limits launches now. We try the same offer again {when(row.limited_until)}{again}."]
    if row.state is _I.READY:
        return [f"{WAITING} Launching on {cloud}{again}."]
    if row.state is _I.SENDING:
        return [f"{WAITING} Launching on {cloud}{again}; {cloud} has not confirmed it yet."]
    if row.state is _I.REJECTED:
        return [f"{BAD} {cloud} did not launch it{again}: {safe(row.outcome, 400) or 'withdrawn'}"]
    if row.state is _I.UNKNOWN:
        lost = f"{cloud}'s reply was lost{again}. We search for the instance by its label"
        return [f"{WARN} *Outcome unknown*: {lost} and launch nothing else meanwhile."]
    if row.state is _I.TOMBSTONE:
        return [f"{WARN} {cloud} never showed the instance{again}: *not provisioned*. If it appears, it's terminated."]
    return _existing(row, cloud, times, why, names_gpus=names_gpus)


def _existing(row: Instance, cloud: str, times: InstanceTimes, why: str, *, names_gpus: bool) -> list[str]:
    """Describe an instance that the cloud confirmed; `why` is a reason that another line says."""
    at = f" {when(times.live_at)}" if times.live_at else ""
    which = f"machine {row.node_rank + 1}" if row.node_rank is not None else "instance"
    shown = [f"{DONE} {cloud} confirmed {which} {code(row.ref or row.name, 80)}{at}."]
    if times.ready_at is not None:
        # Without SSH nothing but the cloud's report shows that it runs.
        how = "Reachable over SSH" if row.ssh_host else f"{cloud} reports that it runs"
        found = checked_gpus(row.gpu_check) if names_gpus else None
        shown.append(f"{DONE} {how} {when(times.ready_at)}{f': {safe(found.line)}' if found else ''}.")
    shown += [
        f"{PAUSED} Stopped {when(stopped)}, started again {when(started)}."
        for stopped, started in times.stops[-STOPS_SHOWN:]
        if started is not None
    ]
    if row.reachable_at is None and row.state is _I.LIVE:
        # A cloud's progress helps somebody who waits; a bare state such as STARTING says "booting" twice.
        words = row.status_text or ""
        said = "" if words.isupper() else safe(words, 120)
        shown.append(f"{WAITING} Booting on {cloud}{f': {said}' if said else ''}.")
        if row.ssh_host:
            shown.append(f"{WAITING} {_login(row)}")
    if row.state is _I.TERMINATING and row.checkpoint_step == CheckpointStep.HELD and row.checkpoint_until is not None:
        shown.append(
            f":floppy_disk: Stopped{_because(row.outcome)}. Its disk stays until {when(row.checkpoint_until)}."
        )
    elif row.state is _I.TERMINATING:
        shown.append(f"{WAITING} Ending{_because(row.outcome)}; {cloud} still lists it.")
    elif row.state is _I.GONE:
        because = "" if row.outcome == why else _because(row.outcome)
        shown.append(f"{DONE} Terminated{f' {when(row.ended_at)}' if row.ended_at else ''}{because}.")
    return shown


def _login(row: Instance) -> str:
    """Say what an instance with an address still lacks: an SSH server, a login, or the check of its GPUs."""
    # One that was checked before is being started again, and is not checked a second time.
    if row.login_key is None or row.host_key_at is None or checked_gpus(row.gpu_check) is not None:
        return "Waiting for SSH to answer."
    if (row.gpu_check or {}).get("problem"):
        return "SSH answers, but GPU Shopper can't log in yet."
    return "SSH answers. Checking the GPUs."


def _because(sentence: str) -> str:
    said = safe(sentence.rstrip("."), 300)
    return f" ({said})" if said else ""


def _session(session: Session, times: InstanceTimes | None, cost_usd: Decimal | None, saved_usd: Decimal) -> list[str]:
    ready, ended = (times.ready_at if times else None) or session.ready_at, session.ended_at
    cost = f" Total: {dollars(cost_usd)}." if cost_usd is not None else ""
    saved = f" Saved by ending early: {dollars(saved_usd)}." if saved_usd > 0 else ""
    if session.state is SessionState.RUNNING:
        at = f" {when(ready)}" if ready else ""
        until = f" Ends {when(session.deadline)}." if session.deadline else ""
        return [f":rocket: *Ready*{at}.{until}"]
    if session.state is SessionState.STOPPED:
        until = f" until {when(session.deadline)}" if session.deadline and not session.preserve else ""
        at = f" {when(times.stops[-1][0])}" if times and times.stops else ""
        return [f"{PAUSED} *Stopped*{at}: the GPU is released; the disk may still be billed{until}."]
    if session.state is SessionState.TERMINATED:
        at = f" {when(ended)}" if ended else ""
        ran = f" after {ran_for(session)}" if ran_for(session) else ""
        return [f":checkered_flag: *Ended*{at}{ran}{_because(session.end_reason)}.{cost}{saved}"]
    if session.state is SessionState.FAILED:
        return [f"{BAD} *Failed*{_because(session.end_reason)}.{cost}"]
    return []


def ran_for(session: Session) -> str:
    """Say how long a session ran that has ended; empty where it was never ready."""
    ran_s = seconds_run(session, session.ended_at) if session.ended_at is not None else None
    return "" if ran_s is None else brief(Decimal(max(ran_s, 60)) / 3600)


def request_result(view: RequestView, reached: str) -> Message:
    """Describe one outcome. `reached` is the state it is about, which may be older than the state in `view`.

    What it cost stands on the request's card, above this reply.
    """
    asker = person(view.request.requester)
    what = safe(machine_title(view))
    return Message.of(f"{asker} {_sentence(view, reached, what)}")


def _sentence(view: RequestView, reached: str, what: str) -> str:
    request, session = view.request, view.session
    if reached == RequestState.REJECTED:
        return (
            f":no_entry: {what}: rejected by {person(request.decided_by or '')}: {safe(request.outcome, SENTENCE_MAX)}"
        )
    if reached == RequestState.EXPIRED:
        return f":alarm_clock: {what}: nobody approved it in time. Make a new request for fresh offers."
    if reached == InstanceState.TOMBSTONE:
        again = " Approve again?" if request.state is RequestState.PENDING else ""
        lost = f"{_newest_cloud(view)} never showed the instance. If it appears, it's terminated"
        return f":warning: {what}: *outcome unknown, not provisioned*. {lost}.{again}"
    if reached == SessionState.RUNNING and session is not None and session.ended_at is not None:
        return f":rocket: {what} ran at {_newest_cloud(view)}."
    if reached == SessionState.RUNNING:
        until = f" until {when(session.deadline)}" if session and session.deadline else ""
        return f":rocket: {what} is ready at {_newest_cloud(view)}{until}."
    why = f" {safe(session.end_reason, SENTENCE_MAX)}" if session and session.end_reason else ""
    if reached == SessionState.FAILED:
        return f":x: {what} failed.{why}"
    return f":checkered_flag: {what} ended.{why}"


def _newest_cloud(view: RequestView) -> str:
    newest: Instance | None = view.instances[-1] if view.instances else None
    return safe(cloud_title(newest.cloud), 40) if newest else "the cloud"
