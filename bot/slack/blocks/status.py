"""Build the answer to `/gpu status ID`: one request, its session, and how to connect."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.approvers import ANYBODY
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.sessions.expiration import left, termination_policy
from bot.rules.values.phrases import retained_disk, unreconciled
from bot.rules.values.state_text import state_words
from bot.services.nodes.connection import api_url, fingerprint, ssh_command
from bot.services.nodes.views import agent_view
from bot.services.sessions.service import Status
from bot.slack.blocks import request, session_ready_and_ended
from bot.slack.blocks.elements import Block, Message, actions, clip, code, context, dollars, safe, section, when
from ledger.kernel.checkpoint_step import WAITS
from ledger.kernel.states import ENDABLE_SESSION, LIVE_SESSION
from ledger.models import Session
from ledger.queries.views import SessionView


def status(
    found: Status,
    policy: Policy,
    cost_usd: Decimal | None,
    now: datetime,
    *,
    mine: bool,
    can_end: bool = True,
    mandate: ApproverGroup = ANYBODY,
    between: tuple[Decimal, Decimal] | None = None,
) -> Message:
    """Show the request's message without buttons, then the countdown and what ends the session.

    Its owner also reads how to connect. `can_end`: whether its cloud has a call that ends it. `between`: the least and
    most that it can have cost where the cloud never reports it.
    """
    shown = request.request_message(found.request, policy, cost_usd, mandate=mandate)
    blocks: list[Block] = [block for block in shown.blocks if block["type"] != "actions"]
    text = shown.text
    view = found.session
    if view is not None:
        disk = ", its disk kept" if view.retained_disk else ""
        lines = [f"Session {code(view.session.id)} is *{state_words(view.session.state)}*{disk}."]
        ended = view.session.ended_at
        if ended is not None:
            lines.append(f"Ended {when(ended)}.")
        elif view.session.deadline and not view.retained_disk:
            lines.append(f"Ends {when(view.session.deadline)}" + _countdown(view.session, now))
        if cost_usd is not None:
            lines.append(f"Cost so far {dollars(cost_usd)}." if ended is None else f"It cost {dollars(cost_usd)}.")
        if between is not None:
            lines.append(safe(unreconciled(*between)))
        row = view.instance
        still = view.disk is not None  # Nothing answers there until it is started again.
        if mine and row is not None and row.ssh_host and view.session.state in LIVE_SESSION and not still:
            lines.append(f"Connect: {code(ssh_command(row), 400)}")
            if row.host_key:
                lines.append(f"Host key {code(fingerprint(row.host_key))}.")
            lines += _node_api(view)
        if row is not None and row.checkpoint_step in WAITS and row.gate_note:
            lines.append(f"Its end waits. {safe(row.gate_note, 600)}")
        if view.disk is not None:
            lines.append(retained_disk(view.disk.price_usd_h, view.disk.until))
        if view.session.state in ENDABLE_SESSION:
            agent = agent_view(view, now).line
            lines.append(termination_policy(policy.warn_before_end_s, can_end=can_end, agent=agent))
        blocks.append(section(" ".join(lines)))
        text = f"{text} {' '.join(lines)}"
        if mine and view.session.state in ENDABLE_SESSION:
            blocks.append(actions(session_ready_and_ended.end_button(view.session)))
    blocks.append(context(f"Request {code(found.request.request.id)}"))
    return Message(clip(text, 3_900), tuple(blocks))


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
