"""Turn requests and sessions of the REST API into tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from bot.api.schemas.requests import RequestOut, RequestSummary, WaitOut
from bot.api.schemas.sessions import GpuCheckOut, NodeApiOut, SessionOut, Ssh
from bot.cli.terminal.listing import ListColumns, ListView, listing
from bot.cli.terminal.screen import for_people
from bot.cli.terminal.wording import exact, when
from bot.rules.instances.checked_gpus import CheckedGpus
from bot.rules.jobs.job_text import machine
from bot.rules.values.phrases import (
    brief,
    hour_limit,
    hours,
    place_name,
    rate,
    retained_disk,
    unreconciled,
    unsure_end,
    usd,
)
from bot.rules.values.state_text import state_words, words_of
from bot.rules.values.text_table import TextReport, TextTable
from ledger.kernel.end_reason import END_LABELS
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState, SessionState
from providers import cloud_names
from providers.profiles import model

OPTIONS = ("#", "GPU", "cloud", "region", "per hour", "about", "at most")


def time_cell(at: datetime | None) -> str:
    """Write a moment in a cell: as people say it, or exactly for a program."""
    return when(at) if for_people() else exact(at)


def name_of(actor: str) -> str:
    """Write who somebody is: `alice` for operator:alice, the id alone for a member of Slack."""
    kind, _, name = actor.partition(":")
    return {"operator": name, "slack": name.rpartition("/")[2], "system": "GPU Shopper"}.get(kind, actor)


def request_list(found: Sequence[RequestSummary], none: str = "There are no requests.") -> ListView:
    """List requests."""
    open_states = (RequestState.PENDING, RequestState.WAITING)
    columns: ListColumns[RequestSummary] = (
        ("request", lambda one: short_id(one.id)),
        ("state", _state_now),
        ("asks for", lambda one: one.requested),
        ("by", lambda one: one.requester_name or name_of(one.requester)),
        ("expires", lambda one: time_cell(one.expires_at if one.state in open_states else None)),
        ("made", lambda one: time_cell(one.created_at)),
        ("reason", lambda one: one.reason or "-"),
    )
    return listing(none, columns, found, extra=("made",))


def _state_now(one: RequestSummary) -> str:
    """Write the state of a request, and of one that is approved the state of what it bought."""
    bought = one.session_state if one.state is RequestState.APPROVED else None
    return state_words(one.state if bought is None else bought)


def request_details(one: RequestOut, *, verbose: bool = False) -> TextReport:
    """Describe one request: its offers, and who must approve it or how it was decided.

    `verbose` adds the offers' ids, how each total is made, and what was left out.
    """
    by = one.requester_name or name_of(one.requester)
    lead = f"Request {short_id(one.id)} by {by} for {one.requested} is {state_words(one.state)}."
    rows = tuple(
        (
            str(option.rank),
            machine(option.nodes, option.gpu_count, option.gpu, "x"),
            option.cloud,
            place_name(option.region, option.country),
            rate(option.price_usd_h),
            usd(option.expected_usd),
            usd(option.worst_usd),
            *((option.offer_id, f"{option.why} Expected: {option.parts}." if option.parts else option.why) * verbose),
        )
        for option in one.options
    )
    said = [f"#{option.rank} {option.checkpoint_hold}." for option in one.options if option.checkpoint_hold]
    said += [f"Shared with {', '.join(map(name_of, one.shared_with_names))}."] if one.shared_with else []
    limit = hour_limit(one.max_hours_without_override)
    said += [one.reason and f"Reason: {one.reason}", one.outcome]
    if one.wait and one.state == RequestState.WAITING:
        said.append(_waits(one.wait))
    if one.override_state == RequestState.PENDING:
        said.append(f"Above the {limit} limit: an approval also approves the {limit} override.")
    elif one.override_state:
        said.append(f"Its {limit} override is {words_of(RequestState, one.override_state)}.")
    if one.waiting:
        named = ", ".join([*(one.waiting.approver_names or one.waiting.approvers), *one.waiting.approver_groups])
        who = named or "none yet; the policy names no approver"
        said.append(one.waiting.rule)
        given = f"It has {one.waiting.approvals} of {one.waiting.required}. " if one.waiting.approvals else ""
        said.append(f"{given}Approvers: {who}.")
        requested = one.job.get("hours")
        if requested is not None and one.waiting.hours < Decimal(str(requested)):
            said.append(f"An approver has shortened it to {hours(one.waiting.hours)}.")
        said.append(f"It expires {when(one.waiting.until)}.")
        said += one.excluded if verbose else []
    elif one.decided_by:
        said.append(
            f"{one.state.capitalize()} by {one.decided_by_name or name_of(one.decided_by)}, {when(one.decided_at)}."
        )
    if one.kind == RequestKind.OVERRIDE_12H and one.parent_id and one.waiting:
        said.append(f"Approve it with its request: `gpu-shopper approve {short_id(one.parent_id)}`.")
    if one.session_id:
        said.append(f"Its session: `gpu-shopper session {short_id(one.id)}`.")
    said += [one.hint, one.paused]
    head = (*OPTIONS, "offer", "why") if verbose else OPTIONS
    tables = (TextTable(head=head, rows=rows),) if rows else ()
    return TextReport(lead=lead, tables=tables, sentences=tuple(sentence for sentence in said if sentence))


def _waits(wait: WaitOut) -> str:
    """Say for what a request waits, what it may cost, and who approved that in advance."""
    total = wait.total_cap_usd
    most = f" It never costs more than {usd(total)}." if total is not None else ""
    given = ", ".join(f"{name_of(one.approver)} up to {usd(one.total_cap_usd)}" for one in wait.in_advance)
    return f"{wait.sentence}{most}" + (f" Approved in advance by {given}." if given else "")


def session_list(found: Sequence[SessionOut]) -> ListView:
    """List sessions."""
    columns: ListColumns[SessionOut] = (
        ("session", lambda one: short_id(one.request_id)),
        ("state", lambda one: "disk kept" if outlives(one) else state_of(one)),
        ("GPU", _machine),
        ("cloud", lambda one: one.cloud or "-"),
        ("per hour", lambda one: _rate(one.now_usd_h)),
        ("so far", lambda one: usd(one.cost_usd)),
        ("ends", lambda one: time_cell(one.disk.until if one.disk and outlives(one) else one.deadline)),
        ("owner", lambda one: one.owner_name or name_of(one.owner)),
        ("job", _job),
    )
    waits = dict.fromkeys(one.paused for one in found if one.paused)
    return listing("There are no sessions.", columns, found, waits, extra=("per hour", "job"))


def session_history(found: Sequence[SessionOut]) -> ListView:
    """List sessions that ended."""
    columns: ListColumns[SessionOut] = (
        ("session", lambda one: short_id(one.request_id)),
        ("GPU", _machine),
        ("ended", lambda one: time_cell(one.ended_at)),
        ("total", lambda one: usd(one.cost_usd)),
        ("owner", lambda one: one.owner_name or name_of(one.owner)),
        ("why", lambda one: END_LABELS.get(one.end_code) or one.end_code or "-"),
        ("ran", _ran),
        ("cloud", lambda one: one.cloud or "-"),
        ("job", _job),
    )
    return listing("No session has ended yet.", columns, found, extra=("ran", "cloud", "job"))


def _machine(one: SessionOut) -> str:
    return machine(one.nodes, one.gpu_count, one.gpu, "x")


def _job(one: SessionOut) -> str:
    return one.job.line if one.job else "-"


def _ran(one: SessionOut) -> str:
    return "-" if one.ran_s is None else brief(Decimal(max(one.ran_s, 60)) / 3600)


def state_of(one: SessionOut) -> str:
    """Write a session's state as a person says it."""
    return one.state_text or state_words(one.state)


def situation(one: RequestOut, session: SessionOut | None) -> str:
    """Say in a few words how far a request or its session is, and what it waits for."""
    now = f"session {state_of(session)}" if session else f"request {state_words(one.state)}{_for_whom(one)}"
    held = session.paused if session else one.paused
    return f"{now}. {held}" if held else now


def _for_whom(one: RequestOut) -> str:
    if one.waiting is None:
        return ""
    named = (
        ", ".join([*(one.waiting.approver_names or one.waiting.approvers), *one.waiting.approver_groups])
        or "nobody: the policy names no approver"
    )
    return f" from {named}"


def outlives(one: SessionOut) -> bool:
    """Whether its disk outlives the approved end: all that is left of it, or preserved for its owner."""
    if one.disk is None:
        return False
    return one.state == SessionState.TERMINATING or (one.deadline is not None and one.disk.until > one.deadline)


def session_details(one: SessionOut) -> TextReport:
    """Describe one session and how to connect."""
    gpus = machine(one.nodes, one.gpu_count, one.gpu, "x")
    cost = f"{usd(one.cost_usd)} {'in all' if one.ended_at else 'so far'}"
    # A stopped machine costs its disk alone, which a sentence below says.
    alone = one.state == SessionState.STOPPED and one.now_usd_h is not None
    now_usd_h = one.now_usd_h if one.now_usd_h is not None else one.price_usd_h
    rate_said = f"{_rate(one.now_usd_h)} (its disk)" if alone else _rate(now_usd_h)
    price = "" if one.disk or one.lost_machine else f" for {rate_said}"
    said = [f"{gpus} at {one.cloud}{price}; {cost}." if one.cloud else gpus]
    if one.shared_with:
        said.append(f"Shared with {', '.join(map(name_of, one.shared_with_names))}.")
    if one.low_usd is not None and one.high_usd is not None:
        said.append(unreconciled(one.low_usd, one.high_usd))
    if one.likely_end_at is not None:
        moments = (when(one.likely_end_at), when(one.earliest_end_at), when(one.latest_end_at))
        said.append(unsure_end(*moments, one.unsettled_usd))
    if one.lost_machine:
        said.append(one.lost_machine)
    if one.deadline and not outlives(one) and one.ended_at is None:
        said.append(f"Ends {when(one.deadline)} (approved for at most {hours(one.hours)}).")
    if one.ends_early_at:
        said.append(f"It ends earlier, {when(one.ends_early_at)}: {one.ends_early_because}")
    if one.end_waits_because:
        said.append(f"Its end waits. {one.end_waits_because}")
    if one.grace:
        said.append(f"{one.grace.line} To decide: `gpu-shopper grace {short_id(one.request_id)} wait|replace|give-up`")
    if one.disk:
        said.append(retained_disk(one.disk.price_usd_h, one.disk.until))
    # Nothing answers on a machine that is stopped or about to be gone.
    answers = one.disk is None and one.state not in (SessionState.STOPPED, SessionState.TERMINATING)
    said += [_gpu_check(one.gpu_check)] if one.gpu_check else []
    said += [f"{one.agent.startup}."] if one.agent and one.agent.startup and answers else []
    said += [f"Job: {one.job.line}."] if one.job else []
    said += [one.resumed] if one.resumed and one.ended_at is None else []
    said += [one.agent.line] if one.agent and answers else []
    if one.ssh and answers:
        said += _ssh(one.ssh, short_id(one.request_id))
    if one.node_api and answers:
        said += _node_api(one.node_api, short_id(one.request_id))
    ran = f" It ran {_ran(one)}." if one.ran_s is not None else ""
    said += [one.end_reason, f"Ended {when(one.ended_at)}.{ran}" if one.ended_at else "", one.paused]
    lead = f"Session {short_id(one.request_id)} of {one.owner_name or name_of(one.owner)} is {state_of(one)}."
    return TextReport(lead=lead, sentences=tuple(filter(None, said)))


def _gpu_check(found: GpuCheckOut) -> str:
    shown = CheckedGpus(
        found.at, tuple(found.gpus), tuple(found.memory_gb), found.driver, found.cuda, tuple(found.tflops)
    )
    return f"{shown.line}, {shown.more}. Checked {when(found.at)}."


def _ssh(found: Ssh, session: str) -> list[str]:
    said = [f"Connect: `gpu-shopper ssh {session}`"] if found.host_key else []
    said.append(f"{'Or with' if said else 'Connect:'} {found.command}")
    said.append(f"Host {found.host}, port {found.port}, user {found.user}.")
    if found.fingerprint:
        how = "as the machine's agent reports it" if found.host_key_confirmed else "as the machine showed it first"
        unconfirmed = "" if found.host_key_confirmed else " Its agent did not confirm it."
        said.append(f"Host key {found.fingerprint}, {how}.{unconfirmed}")
    if found.known_hosts:
        said.append(f"For known_hosts: {found.known_hosts}")
    said += [f"Port {one.port}: {one.address}" for one in found.ports if one.address]
    tunnels = [one.port for one in found.ports if not one.address]
    if tunnels:
        named = ", ".join(map(str, tunnels))
        which = f"Port {named} is" if len(tunnels) == 1 else f"Ports {named} are"
        said.append(f"{which} reached through a tunnel: `gpu-shopper open {session} {tunnels[0]}`")
    return said


def _node_api(found: NodeApiOut, session: str) -> list[str]:
    said = [f"API of its machine: {found.url}, certificate SHA-256 {found.certificate_sha256}."]
    if found.other_certificate_sha256:
        other = f"At {when(found.other_at)} it showed another one: {found.other_certificate_sha256}. Don't trust that."
        said.append(other)
    made = f" The last one is from {when(found.token_made_at)}." if found.token_made_at else ""
    said.append(f"`gpu-shopper session token {session}` makes its token and shows it once.{made}")
    return said


def end_question(one: SessionOut) -> str:
    """Ask whether a session ends: what it is, what it has cost, and what is lost."""
    where = f" at {one.cloud}" if one.cloud else ""
    of = f"of {one.owner_name or name_of(one.owner)}, {state_of(one)}, {usd(one.cost_usd)} so far"
    what = f"{machine(one.nodes, one.gpu_count, one.gpu, 'x')}{where} {of}"
    lost = facts.over if (facts := _profile(one)) is not None else ""
    return f"End session {short_id(one.request_id)} now: {what}? {lost}".rstrip()


def _profile(one: SessionOut) -> model.Profile | None:
    """Return what is known of the session's cloud, or of its volumes."""
    known = one.cloud is not None and cloud_names.machines_of(one.cloud) in cloud_names.names()
    return model.load(one.cloud) if one.cloud is not None and known else None


def stop_question(one: SessionOut) -> str:
    """Ask whether a machine stops, where a stop wipes something; empty where it wipes nothing."""
    said = facts.stopped if (facts := _profile(one)) is not None else ""
    if "wipes" not in said:
        return ""
    gpus = machine(one.nodes, one.gpu_count, one.gpu, "x")
    return f"Stop session {short_id(one.request_id)}: {gpus} at {one.cloud}? {said}"


def _rate(price_usd_h: Decimal | None) -> str:
    return "-" if price_usd_h is None else rate(price_usd_h)
