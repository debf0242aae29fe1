"""Build the answer to `/gpu status ID`: one request, its session, and how to connect."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from bot.rules.access.sight import Sight
from bot.rules.billing.end_times import KnownEnd
from bot.rules.instances.checked_gpus import checked_gpus
from bot.rules.jobs import job_text
from bot.rules.jobs.stored import job_of
from bot.rules.nodes.authorized_keys import fingerprint
from bot.rules.nodes.host_keys import confirmation
from bot.rules.policy.policy import Policy
from bot.rules.sessions.expiration import left, termination_policy
from bot.rules.values.phrases import rate, retained_disk, unreconciled
from bot.services.nodes.connection import api_url, ssh_command
from bot.services.nodes.host_keys import reported_key
from bot.services.nodes.job_results import job_status_of
from bot.services.nodes.views import agent_view
from bot.services.runtime import recovery_mode
from bot.services.sessions import session_state
from bot.services.sessions.lost_machine import lost_machine
from bot.services.sessions.service import Status
from bot.slack.blocks import progress, relocation, request
from bot.slack.blocks.elements import Message, actions, clip, code, context, dollars, safe, section, when
from bot.slack.blocks.session import session_ready_and_ended
from bot.slack.blocks.session.session_ready_and_ended import details_button
from ledger.kernel.checkpoint_step import WAITS
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import ENDABLE_SESSION, LIVE_SESSION, OPEN_INSTANCE, RequestState, SessionState
from ledger.models import Session
from ledger.queries.views import RequestView, SessionView
from providers.cloud_names import cloud_title

#: The most characters of a continuation context that a section shows.
CONTEXT_MAX = 2_800
#: States in which the newest step says more than the state: what is launched, or why it was not.
_LAUNCHING = (SessionState.QUEUED, SessionState.PROVISIONING)


def status(
    found: Status,
    policy: Policy,
    facts: request.CardFacts,
    now: datetime,
    sight: Sight,
    *,
    mine: bool = False,
    command: str = "/gpu",
    can_end: bool = True,
    between: tuple[Decimal, Decimal] | None = None,
    end: KnownEnd | None = None,
) -> Message:
    """Show a session in at most 40 words, with *Details* for the rest; before it exists, its request as briefly.

    `sight` says how much the reader sees; to its owner (`mine`) it also shows the button that ends it.
    `can_end`: whether its cloud has a call that ends it. `between`: the least and
    most that it can have cost where the cloud never reports it. `end`: when its machine ended, where nobody saw that.
    `command` is the slash command.
    """
    view = found.session
    if view is None:
        return _before_a_session(found.request, policy, facts)
    session, row = view.session, view.instance
    lines = [_headline(view, now), *_amounts(view, facts.cost_usd, between)]
    lines += [unsure.strip()] if (unsure := session_ready_and_ended.unsure(row, end)) else []
    lost = lost_machine(view)
    lines += [f":warning: {safe(lost, 600)}"] if lost else []
    if row is not None and _reachable(view):
        lines += session_ready_and_ended.gpus(row)
    if sight.connects and _reachable(view) and row is not None:
        lines.append(f"Connect: {code(ssh_command(row), 400)}")
        lines += session_ready_and_ended.other_machines(view)
        lines += session_ready_and_ended.port_lines(view)
    if session.state in _LAUNCHING and not lost:
        lines += progress.lines(found.request)[-1:]
    if (job := job_status_of(view)) is not None:
        lines.append(f"Job: *{job.line}*.")
    if view.resumed and sight.shows_work and not session_ready_and_ended.is_over(session):
        lines.append(safe(view.resumed, 400))
    lines += relocation.lines(found.request.migration, found.request.request.id) if sight.shows_work else []
    lines += _warnings(view, now, command, sight, can_end=can_end)
    block = section("\n".join(lines))
    buttons = [session_ready_and_ended.end_button(session)] if mine and session.state in ENDABLE_SESSION else []
    buttons += [] if session_ready_and_ended.is_over(session) else [details_button(session)]
    ids = context(f"Session {code(session.short_id)}")
    return Message(clip(" ".join(lines), 3_900), (block, *([actions(*buttons)] if buttons else []), ids))


def _before_a_session(view: RequestView, policy: Policy, facts: request.CardFacts) -> Message:
    """Show a request that waits in a few lines; one that looks for offers, or has ended, as its card says it."""
    ids = context(f"Request {code(short_id(view.request.id))}")
    if view.request.state is not RequestState.PENDING:
        card = request.request_message(view, policy, facts)
        return Message(card.text, (*(block for block in card.blocks if block["type"] != "actions"), ids))
    if view.request.kind is RequestKind.OVERRIDE_12H:
        named = job_text.what_is_requested(
            view.request.kind, job_of(view.request.job), view.request.parent_id, policy.max_hours
        )
        lines = [f"*{safe(named)}*, approved with it."]
    else:
        lines = request.waiting(view, policy, facts)
    waits = recovery_mode.of_request(view)
    lines += [f":warning: {safe(waits, 600)}"] if waits else []
    return Message(clip(" ".join(lines), 3_900), (section("\n".join(lines)), ids))


def details(view: SessionView, policy: Policy, now: datetime, sight: Sight, *, can_end: bool = True) -> Message:
    """Show what the short status leaves out: host key, the API of its machine, what ends it, what its agent reports."""
    session, row = view.session, view.instance
    if session_ready_and_ended.is_over(session):
        return Message.of("This session has ended.")
    lines = []
    if sight.connects and _reachable(view) and row is not None:
        lines.append(
            f"Host {code(row.ssh_host or '')} · port {code(str(row.ssh_port))} · user {code(row.ssh_user or 'root')}"
        )
        if row.host_key:
            said = confirmation(row.host_key, reported_key(view.node))
            lines.append(f"Host key {code(fingerprint(row.host_key))}, {said}{session_ready_and_ended.known(row)}")
        lines += _node_api(view)
    if row is not None and row.reachable_at is not None and _reachable(view):
        found = checked_gpus(row.gpu_check)
        lines.append(f"GPUs: {safe(found.line)}, {safe(found.more)}" if found else "GPUs: not checked by a login")
    if session.state in ENDABLE_SESSION:
        agent = agent_view(view, now).line if sight.shows_work else ""
        lines.append(termination_policy(policy.warn_before_end_s, can_end=can_end, agent=agent))
    lines = lines or ["There is nothing more to show yet."]
    blocks = [section("\n".join(lines))]
    if sight.connects and view.migration is not None and view.migration.context:
        blocks.append(section(f"```{safe(view.migration.context.replace('`', ''), CONTEXT_MAX)}```"))
    return Message(clip(" ".join(lines), 3_900), tuple(blocks))


def _headline(view: SessionView, now: datetime) -> str:
    """Name the machine, where it is, its state and its end."""
    session, row = view.session, view.instance
    where = f" on {safe(cloud_title(row.cloud), 40)}" if row is not None else ""
    line = f"*{session_ready_and_ended.what(session)}*{where} is *{session_state.words(view, now)}*"
    line += ", its disk kept." if view.retained_disk else "."
    if session.ended_at is not None:
        why = f" {safe(session.end_reason, 300)}" if session.end_reason else ""
        return f"{line} Ended {when(session.ended_at)}.{why}"
    if session.deadline and not view.retained_disk:
        return f"{line} Ends {when(session.deadline)}{_countdown(session, now)}"
    return line


def _amounts(view: SessionView, cost_usd: Decimal | None, between: tuple[Decimal, Decimal] | None) -> list[str]:
    """Say the price, and what it has cost; a free run or one without an instance has neither."""
    parts = []
    if _has_rate(view):
        parts.append(rate(session_state.now_usd_h(view) or view.price_usd_h))
    if cost_usd is not None:
        so_far = f"{dollars(cost_usd)} so far"
        parts.append(so_far if view.session.ended_at is None else f"It cost {dollars(cost_usd)}.")
    said = [" · ".join(parts)] if parts else []
    return said + ([safe(unreconciled(*between))] if between is not None else [])


def _warnings(view: SessionView, now: datetime, command: str, sight: Sight, *, can_end: bool) -> list[str]:
    """Say what may surprise: recovery mode, a longer job, an end that waits, a costly disk, another certificate."""
    session, row, node = view.session, view.instance, view.node
    waits = recovery_mode.of_session(view)
    said = [f":warning: {safe(waits, 600)}"] if waits else []
    agent = agent_view(view, now)
    if agent.ends_first and agent.eta is not None and session.state in ENDABLE_SESSION:
        more = code(f"{command} extend {session.short_id} 1h")
        said.append(f":warning: Ends before its job: at this speed that is done {when(agent.eta)}. More time: {more}")
    if row is not None and row.checkpoint_step in WAITS and row.gate_note and sight.shows_work:
        said.append(f"Its end waits. {safe(row.gate_note, 600)}")
    if view.disk is not None:
        said.append(retained_disk(view.disk.price_usd_h, view.disk.until))
    if node is not None and node.api_other is not None and _reachable(view):
        said.append(":warning: Its API showed another certificate: see *Details*.")
    if not can_end and session.state in ENDABLE_SESSION:
        said.append(session_ready_and_ended.GOES_ON)
    return said


def _has_rate(view: SessionView) -> bool:
    """Whether an hour costs what its machine costs: a lost machine costs nothing, and a retained disk less."""
    has_machine = view.instance is not None and not lost_machine(view)
    return has_machine and view.session.ended_at is None and view.disk is None


def _reachable(view: SessionView) -> bool:
    """Whether somebody can log in; nothing answers on a stopped machine."""
    row = view.instance
    is_there = row is not None and row.state in OPEN_INSTANCE and view.session.state in LIVE_SESSION
    return is_there and row is not None and bool(row.ssh_host) and view.disk is None


def _node_api(view: SessionView) -> list[str]:
    """Say where the machine's own API is. Its token is never shown in Slack."""
    node = view.node
    url = api_url(view.instance, node) if view.instance is not None else None
    if node is None or url is None:
        return []
    said = [f"API of its machine: {code(url, 400)}, certificate SHA-256 {code(node.api_certificate or '')}."]
    if node.api_other is not None and node.api_other_at is not None:
        said.append(f"Another one was named {when(node.api_other_at)}: {code(node.api_other)}. *Do not trust it.*")
    return said


def _countdown(session: Session, now: datetime) -> str:
    live = session.deadline is not None and session.state in ENDABLE_SESSION
    return f" ({left(session.deadline, now)})." if live and session.deadline else "."
