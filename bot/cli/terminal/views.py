"""Turn requests and sessions of the REST API into tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from bot.api.schemas.requests import RequestOut, RequestSummary
from bot.api.schemas.sessions import NodeApiOut, SessionOut, Ssh
from bot.cli.terminal.terminal_tables import table_or
from bot.rules.values.phrases import hours, rate, retained_disk, unreconciled, usd
from bot.rules.values.text_table import TextReport, TextTable
from ledger.kernel.ids import short_id
from ledger.kernel.states import RequestState, SessionState
from providers import cloud_names
from providers.profiles import model

OPTIONS = ("#", "offer", "GPU", "region", "per hour", "expected", "worst", "why")


def when(at: datetime | None) -> str:
    """Format a moment in UTC."""
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else "-"


def request_list(found: Sequence[RequestSummary]) -> TextReport:
    """List requests."""
    head = ("request", "state", "by", "made", "until", "reason")
    rows = (
        (short_id(one.id), one.state, one.requester, when(one.created_at), when(one.expires_at), one.reason or "-")
        for one in found
    )
    return table_or("There are no requests.", head, rows)


def request_details(one: RequestOut) -> TextReport:
    """Describe one request: its offers, and who must approve it or how it was decided."""
    lead = f"Request {short_id(one.id)} by {one.requester} is {one.state}."
    rows = tuple(
        (
            str(option.rank),
            option.offer_id,
            f"{option.gpu_count}x {option.gpu}",
            option.region,
            rate(option.price_usd_h),
            usd(option.expected_usd),
            usd(option.worst_usd),
            f"{option.why} Expected: {option.parts}." if option.parts else option.why,
        )
        for option in one.options
    )
    said = [f"#{option.rank} {option.hold}." for option in one.options if option.hold]
    said += [one.reason and f"Reason: {one.reason}", one.outcome]
    if one.override_id:
        so = (
            "it needs an approval first"
            if one.override_state == RequestState.PENDING
            else f"it is {one.override_state}"
        )
        said.append(f"The override for more hours is request {short_id(one.override_id)}; {so}.")
    if one.waiting:
        named = ", ".join([*one.waiting.approvers, *one.waiting.approver_groups])
        who = named or "nobody yet; the policy names no approver"
        said.append(one.waiting.rule)
        said.append(f"{one.waiting.approvals} of {one.waiting.required} approvals. Approvers: {who}.")
        requested = one.job.get("hours")
        if requested is not None and one.waiting.hours < Decimal(str(requested)):
            said.append(f"An approver has shortened it to {hours(one.waiting.hours)}.")
        said.append(f"It waits since {when(one.waiting.since)} and expires {when(one.waiting.until)}.")
        said += one.excluded
    elif one.decided_by:
        said.append(f"Decided by {one.decided_by} at {when(one.decided_at)}.")
    if one.session_id:
        said.append(f"Session {short_id(one.session_id)}.")
    said += [one.hint, one.held]
    tables = (TextTable(head=OPTIONS, rows=rows),) if rows else ()
    return TextReport(lead=lead, tables=tables, sentences=tuple(sentence for sentence in said if sentence))


def session_list(found: Sequence[SessionOut]) -> TextReport:
    """List sessions."""
    if not found:
        return TextReport(sentences=("Nothing is running.",))
    head = ("session", "state", "GPU", "cloud", "per hour", "so far", "ends", "owner")
    rows = [
        (
            short_id(one.id),
            "disk kept" if outlives(one) else one.state,
            f"{one.gpu_count}x {one.gpu or 'GPU'}",
            one.cloud or "-",
            _rate(one.disk.price_usd_h if one.disk else one.price_usd_h),
            usd(one.cost_usd),
            when(one.disk.until if one.disk and outlives(one) else one.deadline),
            one.owner,
        )
        for one in found
    ]
    waits = tuple(dict.fromkeys(one.held for one in found if one.held))
    return TextReport(tables=(TextTable(head=head, rows=tuple(rows)),), sentences=waits)


def outlives(one: SessionOut) -> bool:
    """Whether the approved end has passed and only the disk is left."""
    return one.disk is not None and one.state == SessionState.TERMINATING


def session_details(one: SessionOut) -> TextReport:
    """Describe one session and how to connect."""
    gpus = f"{one.gpu_count}x {one.gpu or 'GPU'}"
    said = [f"{gpus} at {one.cloud} for {_rate(one.price_usd_h)}; {usd(one.cost_usd)} so far." if one.cloud else gpus]
    if one.low_usd is not None and one.high_usd is not None:
        said.append(unreconciled(one.low_usd, one.high_usd))
    if one.deadline and not outlives(one):
        said.append(f"Ends {when(one.deadline)} (approved for at most {hours(one.hours)}).")
    if one.ends_early_at:
        said.append(f"It is ended {when(one.ends_early_at)}, before that: {one.ends_early_because}")
    if one.end_waits_because:
        said.append(f"Its end waits. {one.end_waits_because}")
    if one.disk:
        said.append(retained_disk(one.disk.price_usd_h, one.disk.until))
    said += [one.agent.line] if one.agent else []
    if one.ssh and one.disk is None:  # Nothing answers while the machine is stopped.
        said += _ssh(one.ssh)
    if one.node_api:
        said += _node_api(one.node_api, short_id(one.id))
    said += [one.end_reason, f"Ended {when(one.ended_at)}." if one.ended_at else "", one.held]
    lead = f"Session {short_id(one.id)} of {one.owner} is {one.state}."
    return TextReport(lead=lead, sentences=tuple(filter(None, said)))


def _ssh(found: Ssh) -> list[str]:
    said = [f"Connect: {found.command}", f"Host {found.host}, port {found.port}, user {found.user}."]
    if found.fingerprint:
        said.append(f"Host key {found.fingerprint}, as it showed first.")
    if found.known_hosts:
        said.append(f"For known_hosts: {found.known_hosts}")
    return said


def _node_api(found: NodeApiOut, session: str) -> list[str]:
    said = [f"API of its machine: {found.url}, certificate SHA-256 {found.certificate_sha256}, as it was named first."]
    if found.other_certificate_sha256:
        other = f"Another one was named at {when(found.other_at)}: {found.other_certificate_sha256}. Do not trust it."
        said.append(other)
    made = f" (the last one was made {when(found.token_made_at)})" if found.token_made_at else ""
    said.append(f"gpu-shopper session token {session} makes its token and shows it once{made}.")
    return said


def end_question(one: SessionOut) -> str:
    """Ask whether a session ends: what it is, what it has cost, and what is lost."""
    where = f" at {one.cloud}" if one.cloud else ""
    what = f"{one.gpu_count}x {one.gpu or 'GPU'}{where} of {one.owner}, {one.state}, {usd(one.cost_usd)} so far"
    lost = model.load(one.cloud).over if one.cloud in cloud_names.names() else ""
    return f"End session {short_id(one.id)} now: {what}? {lost}".rstrip()


def _rate(price_usd_h: Decimal | None) -> str:
    return "-" if price_usd_h is None else rate(price_usd_h)
