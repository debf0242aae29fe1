"""Show the progress of an approved request, one line per step, and the reply in its thread when its state changes.

An instance exists only once its cloud confirmed it. An edit of a message notifies nobody, a reply does.
"""

from __future__ import annotations

from decimal import Decimal

from bot.rules.values.phrases import rate
from bot.slack.blocks import job as job_words
from bot.slack.blocks.elements import SENTENCE_MAX, Message, code, dollars, person, safe, when
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Instance, Session
from ledger.queries.views import RequestView

DONE, WAITING, BAD, WARN = ":white_check_mark:", ":hourglass_flowing_sand:", ":x:", ":warning:"

_I = InstanceState


def lines(view: RequestView, cost_usd: Decimal | None) -> list[str]:
    """List the steps of every instance of the request's session, then the session's state, as mrkdwn."""
    if view.session is None:
        return []
    shown = [line for instance in view.instances[-4:] for line in _instance(instance, view.session)]
    shown += _session(view.session, cost_usd)
    return shown


def headline(view: RequestView) -> str:
    """Name the state in a few words, for the title line and for screen readers."""
    session = view.session
    newest = view.instances[-1] if view.instances else None
    if session is None:
        return "approved"
    if session.state in (SessionState.QUEUED, SessionState.PROVISIONING):
        return _placing(newest)
    if (
        session.state is SessionState.TERMINATING
        and newest is not None
        and newest.checkpoint_step == CheckpointStep.HELD
    ):
        return "stopped, its disk kept"
    return {
        SessionState.RUNNING: "ready",
        SessionState.STOPPED: "stopped",
        SessionState.TERMINATING: "ending",
        SessionState.TERMINATED: "ended",
        SessionState.FAILED: "failed",
    }[session.state]


def _placing(instance: Instance | None) -> str:
    if instance is None:
        return "approved, launching soon"
    if instance.state is _I.UNKNOWN:
        return "outcome unknown, not provisioned"
    if instance.state is _I.LIVE:
        return "reachable" if instance.reachable_at else "booting"
    return "launching" if instance.state in (_I.READY, _I.SENDING) else "trying the next offer"


def _instance(row: Instance, session: Session) -> list[str]:
    cloud = safe(row.cloud, 40)
    launch = f"launch at {cloud}" + (f" ({row.n})" if row.n > 1 else "")
    if row.state is _I.READY:
        return [f"{WAITING} The {launch} comes next."]
    if row.state is _I.SENDING:
        return [f"{WAITING} The {launch} is sent. {cloud} has not confirmed it yet."]
    if row.state is _I.REJECTED:
        return [f"{BAD} The {launch} failed: {safe(row.outcome, 400) or 'withdrawn'}"]
    if row.state is _I.UNKNOWN:
        return [
            f"{WARN} *Outcome unknown*: the reply to the {launch} was lost. Searching for the instance by its label."
        ]
    if row.state is _I.TOMBSTONE:
        return [f"{WARN} The {launch} was never found: *not provisioned*. If it appears later, it is terminated."]
    return _existing(row, session, cloud)


def _existing(row: Instance, session: Session, cloud: str) -> list[str]:
    """Describe an instance that the cloud confirmed."""
    at = f" {when(row.live_at)}" if row.live_at else ""
    what = f"{session.gpu_count}× {safe(session.gpu, 60)} as reported by the cloud, {rate(row.price_usd_h)}"
    shown = [f"{DONE} {cloud} confirmed instance {code(row.ref or row.name, 80)}{at}: {what}."]
    if row.reachable_at is not None:
        # Without SSH nothing but the cloud's report shows that it runs.
        how = "Reachable over SSH" if row.ssh_host else f"Running, as {cloud} reports,"
        shown.append(f"{DONE} {how} {when(row.reachable_at)}.")
    elif row.state is _I.LIVE:
        said = ": ".join(safe(part, 120) for part in (row.status, row.status_text) if part)
        shown.append(f"{WAITING} Booting" + (f" (the cloud says {said})" if said else "") + ".")
        if row.ssh_host:
            shown.append(f"{WAITING} Waiting for SSH to answer.")
    if row.state is _I.TERMINATING and row.checkpoint_step == CheckpointStep.HELD and row.checkpoint_until is not None:
        shown.append(
            f":floppy_disk: Stopped{_because(row.outcome)}. Its disk stays until {when(row.checkpoint_until)}."
        )
    elif row.state is _I.TERMINATING:
        shown.append(f"{WAITING} Ending{_because(row.outcome)}.")
    elif row.state is _I.GONE:
        shown.append(f"{DONE} Ended{f' {when(row.ended_at)}' if row.ended_at else ''}{_because(row.outcome)}.")
    return shown


def _because(sentence: str) -> str:
    said = safe(sentence.rstrip("."), 300)
    return f" ({said})" if said else ""


def _session(session: Session, cost_usd: Decimal | None) -> list[str]:
    cost = f" It cost {dollars(cost_usd)}." if cost_usd is not None else ""
    if session.state is SessionState.RUNNING:
        ready = f" {when(session.ready_at)}" if session.ready_at else ""
        until = f" It ends {when(session.deadline)}." if session.deadline else ""
        return [f":rocket: *Ready*{ready}.{until}"]
    if session.state is SessionState.STOPPED:
        return [":double_vertical_bar: *Stopped*: the GPU is released, the disk may still be billed."]
    if session.state is SessionState.TERMINATED:
        ended = f" {when(session.ended_at)}" if session.ended_at else ""
        return [f":checkered_flag: *Ended*{ended}{_because(session.end_reason)}.{cost}"]
    if session.state is SessionState.FAILED:
        return [f"{BAD} *Failed*{_because(session.end_reason)}.{cost}"]
    return []


def request_result(view: RequestView, reached: str, cost_usd: Decimal | None = None) -> Message:
    """Describe one outcome. `reached` is the state it is about, which may be older than the state in `view`."""
    asker = person(view.request.requester)
    what = safe(job_words.title(view.request.job))
    text = f"{asker} {_sentence(view, reached, what, cost_usd)}"
    return Message.of(text)


def _sentence(view: RequestView, reached: str, what: str, cost_usd: Decimal | None) -> str:
    request, session = view.request, view.session
    if reached == RequestState.REJECTED:
        return (
            f":no_entry: {what}: rejected by {person(request.decided_by or '')}: {safe(request.outcome, SENTENCE_MAX)}"
        )
    if reached == RequestState.EXPIRED:
        return f":alarm_clock: {what}: nobody approved it in time. Make a new request for fresh offers."
    if reached == InstanceState.TOMBSTONE:
        lost = f"{_newest_cloud(view)} never confirmed the launch. If an instance appears later, it is terminated"
        return f":warning: {what}: *outcome unknown, not provisioned*. {lost}. Approve again?"
    if reached == SessionState.RUNNING:
        until = f" until {when(session.deadline)}" if session and session.deadline else ""
        return f":rocket: {what} is ready at {_newest_cloud(view)}{until}; how to connect is in your direct messages."
    cost = f" It cost {dollars(cost_usd)}." if cost_usd is not None else ""
    why = safe(session.end_reason, SENTENCE_MAX) if session and session.end_reason else ""
    if reached == SessionState.FAILED:
        return f":x: {what} failed. {why}{cost}"
    return f":checkered_flag: {what} ended. {why}{cost}"


def _newest_cloud(view: RequestView) -> str:
    newest: Instance | None = view.instances[-1] if view.instances else None
    return safe(newest.cloud, 40) if newest else "the cloud"
