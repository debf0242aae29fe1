"""Carry out a decision: close the request, or turn the approval into spend authority and a session."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bot.rules.jobs.stored import job_of
from bot.services.grants import amendments, issue, override, reopen
from bot.services.notifications import request_message
from bot.services.runtime.context import Context
from bot.services.sessions import extension, overspend, volume_growth
from ledger.core import Tx, decide
from ledger.kernel.actor import Actor
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import UNDECIDED, RequestState
from ledger.models import Approval, Request
from ledger.queries.decisions import DecisionSubject


async def close(
    ctx: Context,
    tx: Tx,
    ask: DecisionSubject,
    to: RequestState,
    actor: Actor,
    reason: str,
    now: datetime,
    noted: dict[str, Any] | None = None,
) -> None:
    """Close a request that somebody rejected or withdrew. `noted` goes into the journal.

    An instance whose new rate is rejected is ended.
    """
    sentence = reason.strip()
    open_now = UNDECIDED - ({RequestState.QUOTING} if to is RequestState.REJECTED else set())
    await decide(tx, ask.request.id, to, now, actor, sentence, noted=noted, only_from=open_now)
    # A rejected growth of a volume deletes nothing: the days of notices go on.
    is_machine = not job_of(ask.request.job).makes_volume
    is_rejected = ask.request.kind is RequestKind.OVERSPEND and to is RequestState.REJECTED
    if is_rejected and is_machine and ask.session is not None:
        await overspend.rejected(ctx, tx, ask.request, ask.session, actor, now)
    await reopen.close_family(tx, ask.request, to, sentence, now, actor)


async def approved(
    ctx: Context,
    tx: Tx,
    ask: DecisionSubject,
    approval: Approval,
    actor: Actor,
    now: datetime,
    noted: dict[str, Any] | None = None,
) -> None:
    """Carry out the last approval: mark the request approved and issue its grant, session and one intent.

    An approved extension or overspend changes the existing session instead.
    """
    request = await decide(
        tx,
        ask.request.id,
        RequestState.APPROVED,
        now,
        actor,
        ask.request.rule,
        noted=noted,
        outcome="",
        values={"chosen_option_id": approval.option_id},
    )
    if ask.option is None:
        if request.parent_id:
            await request_message.show_again(tx, await tx.get_one(Request, request.parent_id), now)
        return
    if request.kind is RequestKind.OVERSPEND and job_of(request.job).makes_volume and ask.session is not None:
        await volume_growth.confirmed(ctx, tx, request, approval, ask.session, now)
    elif request.kind is RequestKind.OVERSPEND and ask.session is not None:
        await overspend.confirmed(ctx, tx, request, ask.session, now)
    elif request.kind is RequestKind.EXTEND and ask.session is not None:
        await extension.grant(ctx, tx, request, approval, ask.session, now)
    else:
        said = "The option that was approved needs no override."
        await override.close_override(tx, request.id, said, now, actor)
        await issue.grant_create(ctx, tx, request, approval, ask.option, now)
        await amendments.notify_requester(tx, ctx.policy, request, ask.option, approval, now)
