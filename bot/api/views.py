"""Convert rows of the ledger to answers of the API."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from bot.api.schemas.requests import AdvanceOut, ApprovalOut, OptionOut, RequestOut, RequestSummary, Waiting, WaitOut
from bot.api.schemas.sessions import (
    AgentOut,
    DiskOut,
    GpuCheckOut,
    GraceOut,
    JobOut,
    LoginOut,
    MigrationOut,
    NodeApiOut,
    PortOut,
    SessionOut,
    Ssh,
    Terms,
)
from bot.rules.access.sight import Sight
from bot.rules.approvals.approvers import is_slack_group, mentioned_approvers
from bot.rules.instances.checked_gpus import checked_gpus
from bot.rules.jobs.job_text import what_is_requested
from bot.rules.jobs.sight import job_in_sight
from bot.rules.jobs.stored import job_of, job_with_people
from bot.rules.jobs.waiting_text import LOOKS, waits_for
from bot.rules.nodes.authorized_keys import fingerprint
from bot.rules.nodes.host_keys import KeyMatch, compare
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.relocation.text import NUMBERS
from bot.rules.sessions.running_time import seconds_run
from bot.services.approvals import terms
from bot.services.billing.metering import cost_now
from bot.services.billing.true_up import Range, unsure_end
from bot.services.grants import amendments
from bot.services.market.codec import completeness_of_quote, hold_line, offer_from_json, outlook_of, parts_line
from bot.services.nodes.connection import SSH_PORT, api_url, known_hosts, ssh_command
from bot.services.nodes.host_keys import reported_key
from bot.services.nodes.job_results import job_status_of
from bot.services.nodes.ports import ports_of
from bot.services.nodes.views import agent_view
from bot.services.relocation.messages import progress
from bot.services.runtime import recovery_mode
from bot.services.runtime.context import Context
from bot.services.sessions import session_state as states
from bot.services.sessions.lost_machine import lost_machine
from ledger.kernel.checkpoint_step import WAITS
from ledger.kernel.states import LIVE_SESSION, OPEN_INSTANCE, RequestState, SessionState
from ledger.models import Instance, Node, Option, Request
from ledger.queries.views import RequestView, SessionView

#: Fields of a job that no answer shows: a public key is long, and it belongs to its owner.
HIDDEN_IN_JOB = frozenset({"public_key"})


def request_summary(ctx: Context, request: Request, session_state: SessionState | None = None) -> RequestSummary:
    """Return a request as a list shows it, with the names of its people and the state of its session."""
    return RequestSummary.of(
        request,
        requested=what_is_requested(request.kind, job_of(request.job), request.parent_id, ctx.policy.max_hours),
        session_state=session_state,
        requester_name=ctx.names.of(ctx.policy, request.requester),
        decided_by_name=ctx.names.of(ctx.policy, request.decided_by),
    )


def request_out(ctx: Context, view: RequestView, mandate: ApproverGroup, sight: Sight, hint: str = "") -> RequestOut:
    """Return a request in sight with its approvers; `hint` is what to know before approving it."""
    request, quote = view.request, view.quote
    job = job_in_sight(job_with_people(request.job, share=view.shared_with, secrets=view.secrets), sight)
    return RequestOut(
        **request_summary(ctx, request, view.session.state if view.session else None).model_dump(),
        job={name: value for name, value in job.to_json().items() if name not in HIDDEN_IN_JOB},
        shared_with=list(view.shared_with),
        shared_with_names=[ctx.names.of(ctx.policy, ref) or ref for ref in view.shared_with],
        quote_version=request.quote_version,
        options=[_option(option) for option in view.options],
        approvals=[ApprovalOut.model_validate(vote) for vote in view.approvals],
        excluded=[
            *(str(one.get("sentence", "")) for one in (quote.excluded if quote else [])),
            *(str(one["sentence"]) for one in (quote.clouds if quote else []) if one.get("sentence")),
        ],
        looking_at=list(terms.looking_at(request)),
        completeness=completeness_of_quote(quote) if quote is not None else None,
        wait=_wait(view),
        waiting=_waiting(ctx, view, mentioned_approvers(ctx.policy, mandate))
        if request.state is RequestState.PENDING
        else None,
        override_id=view.override.id if view.override else None,
        override_state=view.override.state if view.override else None,
        max_hours_without_override=ctx.policy.max_hours,
        session_id=view.session.id if view.session else None,
        paused=recovery_mode.of_request(view),
        hint=hint,
    )


def _wait(view: RequestView) -> WaitOut | None:
    limits, request = view.limits, view.request
    if limits is None:
        return None
    job = job_of(request.job)
    return WaitOut(
        sentence=f"It {waits_for(job, limits.from_at, limits.until)}.{LOOKS if job.wait else ''}",
        from_at=limits.from_at,
        until=limits.until,
        price_cap_usd_h=limits.price_cap_usd_h,
        total_cap_usd=limits.total_cap_usd,
        in_advance=[AdvanceOut.model_validate(one) for one in view.in_advance],
    )


def _option(option: Option) -> OptionOut:
    offer = offer_from_json(option.offer)
    return OptionOut.of(
        option,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        nodes=offer.nodes,
        memory_gb=offer.memory_gb,
        region=offer.region,
        country=offer.country,
        spot=offer.spot,
        parts=parts_line(option),
        outlook=outlook_of(option),
        checkpoint_hold=hold_line(option),
    )


def _waiting(ctx: Context, view: RequestView, names: tuple[str, ...]) -> Waiting:
    request = view.request
    people = [name for name in names if not is_slack_group(name)]
    given = [one for one in view.approvals if one.decision == "approve" and one.quote_version == request.quote_version]
    return Waiting(
        rule=request.rule,
        approvers=people,
        approver_names=[ctx.names.of(ctx.policy, name) or name for name in people],
        approver_groups=[name for name in names if is_slack_group(name)],
        approvals=len(given),
        required=request.required_approvals,
        digest=amendments.amended_terms(request, given).digest,
        hours=amendments.most_hours(request, given),
        since=view.quote.created_at if view.quote else request.created_at,
        until=request.expires_at,
    )


def session_out(
    ctx: Context, view: SessionView, now: datetime, sight: Sight, *, between: Range | None = None
) -> SessionOut:
    """Return a session in sight; only its people see how to connect.

    `between` is what it can have cost where its cloud does not report it.
    """
    session, row = view.session, view.instance
    end = unsure_end(ctx, row)
    live, works = session.state in LIVE_SESSION, sight.shows_work
    shows_ssh = sight.connects and live and row is not None and row.state in OPEN_INSTANCE
    return SessionOut.of(
        session,
        owner_name=ctx.names.of(ctx.policy, session.owner),
        shared_with=list(view.shared_with),
        shared_with_names=[ctx.names.of(ctx.policy, ref) or ref for ref in view.shared_with],
        cloud=row.cloud if row else None,
        price_usd_h=view.price_usd_h if row else None,
        now_usd_h=states.now_usd_h(view) if live else None,
        cost_usd=cost_now(ctx, view, now),
        running_usd=cost_now(ctx, view, now) - view.accrued_usd,
        low_usd=between[0] if between else None,
        high_usd=between[1] if between else None,
        unreconciled=between is not None,
        earliest_end_at=end.earliest if end else None,
        likely_end_at=end.likely if end else None,
        latest_end_at=end.latest if end else None,
        unsettled_usd=row.unsettled_usd if row else None,
        hours=Decimal(session.hours),
        ran_s=seconds_run(session, session.ended_at or now),
        status=row.status if row else "",
        lost_machine=lost_machine(view),
        state_text=states.words(view, now),
        grace=_grace(view, now) if live and view.grace is not None else None,
        ends_early_at=session.early_end_at if live else None,
        ends_early_because=(session.early_end_reason or "") if live else "",
        end_waits_because=(row.gate_note or "") if works and row is not None and row.checkpoint_step in WAITS else "",
        disk=DiskOut.model_validate(view.disk) if view.disk is not None else None,
        agent=_agent(view, now) if live and works else None,
        job=_job(view),
        migration=_migration(view) if sight.connects else None,
        resumed=view.resumed if works else "",
        policy=_terms(ctx, view) if live else None,
        gpu_check=_gpu_check(row) if live and row is not None else None,
        ssh=_ssh(view.request, row, view.node) if shows_ssh and row is not None else None,
        other_ssh=[
            one for one in (_ssh(view.request, row, None) for row, _ in view.others if row.ended_at is None) if one
        ]
        if shows_ssh
        else [],
        paused=recovery_mode.of_session(view),
        node_api=_node_api(row, view.node) if shows_ssh and row is not None else None,
    )


def _grace(view: SessionView, now: datetime) -> GraceOut | None:
    if view.grace is None:
        return None
    return GraceOut.of(view.grace, line=states.grace_line(view.grace, now))


def _terms(ctx: Context, view: SessionView) -> Terms:
    return Terms(
        price_cap_usd_h=view.grant.price_cap_usd_h * view.session.nodes if view.grant else None,
        total_cap_usd=view.cap_usd if view.grant else None,
        replacements_left=view.session.replacements_left,
        ends_when_unresponsive=ctx.policy.end_when_unresponsive,
        ends_when_idle=ctx.policy.end_when_idle,
    )


def _job(view: SessionView) -> JobOut | None:
    found = job_status_of(view)
    if found is None:
        return None
    return JobOut(
        state=found.state,
        exit_code=found.exit_code,
        line=found.line,
        attempt=found.attempt,
        attempts=found.attempts,
        failed_step=found.failed_step,
        ended_at=view.session.job_ended_at,
    )


def _migration(view: SessionView) -> MigrationOut | None:
    found = view.migration
    if found is None:
        return None
    line = progress(found, view.session.request_id)
    return MigrationOut.of(found, number=NUMBERS.get(found.step), line=line)


def _agent(view: SessionView, now: datetime) -> AgentOut:
    shown = agent_view(view, now)
    report = shown.heard
    if report is None:
        return AgentOut(line=shown.line)
    return AgentOut.of(
        report,
        line=shown.line,
        heartbeat_age_s=shown.age_s,
        eta=shown.eta,
        cost_to_finish_usd=shown.cost_to_finish_usd,
        startup=shown.startup,
    )


def _gpu_check(row: Instance) -> GpuCheckOut | None:
    found = checked_gpus(row.gpu_check)
    if found is None:
        return None
    return GpuCheckOut(
        at=found.at,
        gpus=list(found.gpus),
        memory_gb=list(found.memory_gb),
        driver=found.driver,
        cuda=found.cuda,
        tflops=list(found.tflops),
    )


def _node_api(row: Instance, node: Node | None) -> NodeApiOut | None:
    url = api_url(row, node)
    if url is None or node is None or node.api_certificate is None:
        return None
    return NodeApiOut(
        url=url,
        certificate_sha256=node.api_certificate,
        other_certificate_sha256=node.api_other,
        other_at=node.api_other_at,
        token_made_at=node.api_token_at,
    )


def _ssh(request: Request, row: Instance, node: Node | None) -> Ssh | None:
    if not row.ssh_host:
        return None
    return Ssh(
        host=row.ssh_host,
        port=row.ssh_port or SSH_PORT,
        user=row.ssh_user or "root",
        command=ssh_command(row),
        host_key=row.host_key,
        fingerprint=fingerprint(row.host_key) if row.host_key else None,
        host_key_confirmed=compare(row.host_key, reported_key(node)) is KeyMatch.SAME,
        known_hosts=known_hosts(row),
        ports=[
            PortOut(port=one.port.number, protocol=one.port.protocol, address=one.address or None)
            for one in ports_of(job_of(request.job), row)
        ],
    )


def login_out(view: SessionView) -> LoginOut:
    """Return how to log in to the instance of a session, which has an address."""
    found = _ssh(view.request, view.instance, view.node) if view.instance is not None else None
    if found is None:
        raise ValueError(f"{view.session.id} has no address")
    return LoginOut(**found.model_dump(), session_id=view.session.id, request_id=view.request.id)
