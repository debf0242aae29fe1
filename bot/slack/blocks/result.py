"""Build the reply in a request's thread when its state changes: an edit notifies nobody, a reply does."""

from __future__ import annotations

from decimal import Decimal

from bot.slack.blocks import job as job_words
from bot.slack.blocks.elements import SENTENCE_MAX, Message, dollars, person, safe, when
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Instance
from ledger.queries.views import RequestView


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
        return f":alarm_clock: {what}: nobody decided in time. Ask again for fresh offers."
    if reached == InstanceState.TOMBSTONE:
        lost = f"{_newest_cloud(view)} never showed the instance that was ordered; if it appears, it is ended"
        return f":warning: {what}: *outcome unknown, not provisioned*. {lost}. Approve again?"
    if reached == SessionState.RUNNING:
        until = f" until {when(session.deadline)}" if session and session.deadline else ""
        return f":rocket: {what} is ready at {_newest_cloud(view)}{until}; how to connect is in your direct messages."
    cost = f" It cost {dollars(cost_usd)}." if cost_usd is not None else ""
    why = safe(session.end_reason, SENTENCE_MAX) if session and session.end_reason else ""
    if reached == SessionState.FAILED:
        return f":x: {what} failed. {why}{cost}"
    return f":checkered_flag: {what} is confirmed gone. {why}{cost}"


def _newest_cloud(view: RequestView) -> str:
    newest: Instance | None = view.instances[-1] if view.instances else None
    return safe(newest.cloud, 40) if newest else "the cloud"
