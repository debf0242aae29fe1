"""Build the app's Home tab: what needs this person, what they run, what their team runs, and what they spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from bot.rules.budgets.budget import BudgetLine, said
from bot.rules.jobs import job_text
from bot.rules.jobs.stored import job_of
from bot.rules.sessions.expiration import left
from bot.rules.values.phrases import Verdict, plural, rate
from bot.services.billing.costs import BriefCosts
from bot.services.sessions.service import Overview
from bot.slack.blocks import listing
from bot.slack.blocks.elements import (
    Block,
    actions,
    code,
    context,
    divider,
    dollars,
    header,
    person,
    safe,
    section,
    stamped,
    when,
)
from bot.slack.blocks.money import spend_bars
from bot.slack.blocks.offers import line, place
from bot.slack.blocks.request import request_buttons
from bot.slack.blocks.session import session_ready_and_ended
from ledger.kernel.ids import short_id
from ledger.kernel.states import ENDABLE_SESSION, SessionState
from ledger.models import Session
from ledger.queries.views import RequestView, SessionView

#: How many rows are shown in full; the rest is a number. A Home tab has at most 100 blocks.
SESSIONS: Final = 12
DECISIONS: Final = 6
BUDGETS: Final = 6
CALLBACK: Final = "home"
OWN, TEAM = "Your spend", "Team spend"


@dataclass(frozen=True, slots=True)
class Mine:
    """What the tab of one person shows; `costs_usd` is what each session has cost so far, by its id."""

    overview: Overview
    costs_usd: Mapping[str, Decimal] = field(default_factory=dict)
    spent: BriefCosts = field(default_factory=BriefCosts)
    #: What everybody spent, for approvers and operators.
    team_spent: BriefCosts | None = None
    budgets: Sequence[BudgetLine] = ()
    #: Requests that this person may approve, and how many there are.
    decidable: Sequence[RequestView] = ()
    decidable_in_all: int = 0
    by_buttons: bool = True
    #: What everybody else runs, for approvers and operators.
    team: Sequence[SessionView] = ()


def home(mine: Mine, command: str, now: datetime) -> dict[str, Any]:
    """Build the view."""
    blocks = [header("GPU Shopper")]
    blocks += [*_decisions(mine), divider()] if mine.decidable else []
    blocks += _sessions(mine, command, now)
    waiting = listing.requests(mine.overview.requests)
    blocks += [divider(), *waiting] if waiting else []
    team = listing.sessions(mine.team, mine.costs_usd, now, "Team")
    blocks += [divider(), *team] if team else []
    blocks += [
        divider(),
        section(_spend(mine)),
        *(spend_bars(TEAM, mine.team_spent.days) if mine.team_spent else spend_bars(OWN, mine.spent.days)),
        context(f"As of {when(now)} · {code(f'{command} help')} lists every command."),
    ]
    return {"type": "home", "callback_id": CALLBACK, "blocks": stamped(blocks, 1)}


def closed(refused: Verdict) -> dict[str, Any]:
    """Build the view of somebody who may not read anything here: it says why."""
    blocks = [header("GPU Shopper"), section(safe(refused.sentence))]
    return {"type": "home", "callback_id": CALLBACK, "blocks": stamped(blocks, 1)}


def _spend(mine: Mine) -> str:
    lines = [_spent(OWN, mine.spent)]
    lines += [_spent(TEAM, mine.team_spent)] if mine.team_spent else []
    lines += [f":bank: {safe(line.key, 80)}: {safe(said(line), 200)}" for line in mine.budgets[:BUDGETS]]
    return "\n".join(lines)


def _spent(whose: str, amounts: BriefCosts) -> str:
    return f":receipt: *{whose}*: {dollars(amounts.today_usd)} today, {dollars(amounts.month_usd)} this month."


def _sessions(mine: Mine, command: str, now: datetime) -> list[Block]:
    views = mine.overview.sessions
    if not views:
        return [section(f"You have no sessions. Request GPUs with {code(f'{command} provision')} in a channel.")]
    blocks = [section(f":computer: *Your sessions* ({len(views)})")]
    for view in views[:SESSIONS]:
        blocks.append(section(_session(view, mine.costs_usd, now)))
        if view.session.state in ENDABLE_SESSION:
            blocks.append(_buttons(view.session))
    if len(views) > SESSIONS:
        blocks.append(context(f"… and {len(views) - SESSIONS} more: {code(f'{command} list')}"))
    return blocks


def _session(view: SessionView, costs_usd: Mapping[str, Decimal], now: datetime) -> str:
    session, row = view.session, view.instance
    at = f" at {safe(row.cloud, 30)} · {listing.price(view)}" if row else ""
    lead = f"*{session_ready_and_ended.what(session)}*{at} · {listing.state(view, now)} · {code(session.short_id)}"
    parts, end = [], listing.ends(view)
    if end:
        parts.append(
            f":hourglass_flowing_sand: {left(end, now)}, {'deleted' if view.retained_disk else 'ends'} {when(end)}"
        )
    if session.id in costs_usd:
        parts.append(f"{dollars(costs_usd[session.id])} so far")
    return f"{lead}\n{' · '.join(parts)}" if parts else lead


def _buttons(session: Session) -> Block:
    end = session_ready_and_ended.end_button(session)
    if session.state not in (SessionState.RUNNING, SessionState.STOPPED) or session.deadline is None:
        return actions(end)
    mark = f"{session.id}/{int(session.deadline.timestamp())}"
    return actions(session_ready_and_ended.more_button(session, mark), end)


def _decisions(mine: Mine) -> list[Block]:
    blocks = [section(f":inbox_tray: *Needs you* ({mine.decidable_in_all})")]
    for view in mine.decidable[:DECISIONS]:
        blocks.append(section(_decision(view)))
        if mine.by_buttons:
            blocks += request_buttons(view)
    if mine.decidable_in_all > len(mine.decidable[:DECISIONS]):
        rest = mine.decidable_in_all - len(mine.decidable[:DECISIONS])
        blocks.append(context(f"… and {plural(rest, 'more request')}, in their own messages."))
    return blocks


def _decision(view: RequestView) -> str:
    request = view.request
    job = job_of(request.job)
    more = "more time for " if request.parent_id else ""
    parts = [
        f"{person(request.requester)} asks for {more}*{safe(job_text.title(job), 100)}* · {code(short_id(request.id))}"
    ]
    if request.reason:
        parts.append(f"“{safe(request.reason, 200)}”")
    for option in view.options[:1]:
        one = line(option)
        cost = f"about {dollars(one.expected_usd)} · never more than {dollars(option.worst_usd)}"
        parts.append(f"{safe(one.gpus, 80)} · {safe(place(one.offer))} · {rate(one.price_usd_h)} · {cost}")
    return "\n".join([*parts, f"Expires {when(request.expires_at)}"])
