"""Whatever people and clouds write, every message fits into Slack, and no markup in it is theirs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bot.blockkit import validate_message, validate_view
from bot.rules.access.sight import Sight
from bot.rules.budgets.budget import BudgetLine, Period
from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.job import JobRequest
from bot.rules.market.filters import Excluded
from bot.rules.market.listing import OfferRows
from bot.rules.market.ranking import OrderedMarket
from bot.rules.market.scoring import Cases
from bot.rules.market.sort_key import SortKey
from bot.rules.plans.completion import FinishedJob, cost_per_success
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from bot.services.billing.costs import DAYS_SHOWN, BriefCosts, Costs
from bot.services.billing.shared_ledger import Summary
from bot.services.market.answers import CloudAnswer
from bot.services.market.catalog import MarketListing
from bot.services.reports.digest_types import DigestDocument, FoundOrphan, RunningSession
from bot.services.runtime.commands import Reply
from bot.services.sessions.service import Overview, Stakes, Status
from bot.slack.blocks import digest, money, operators, private_answer
from bot.slack.blocks import help as help_message
from bot.slack.blocks.elements import Message
from bot.slack.blocks.home import Mine, home
from bot.slack.blocks.inventory import inventory
from bot.slack.blocks.listing import listing
from bot.slack.blocks.progress import request_result
from bot.slack.blocks.request import CardFacts, request_message
from bot.slack.blocks.request_details import reminder, reopened_reply, request_details
from bot.slack.blocks.session import session_ending, session_ready_and_ended
from bot.slack.blocks.session.status import status
from ledger.kernel.calendar_spans import after
from ledger.kernel.states import InstanceState, RequestState, RollupTier, SessionState
from ledger.models import Orphan
from ledger.queries.spend import GROUPS
from ledger.queries.views import RequestView, SessionView
from providers.contract import Offer
from tests.rules.builders import CLOUDS
from tests.rules.builders import job as plain_job
from tests.slack import hostile
from tests.support.clock import START

POLICIES = st.builds(
    Policy,
    approvers=st.lists(st.sampled_from(["U0BOB", "operator:ada"]) | hostile.texts, max_size=30).map(tuple),
    approver_groups=st.lists(st.just("S0APPROVERS") | hostile.texts, max_size=3).map(tuple),
)
OUTCOMES = st.sampled_from([*RequestState, *SessionState, InstanceState.TOMBSTONE]).map(str) | hostile.texts

# Shrinking such large rows takes minutes and is only needed by somebody who reads a failure.
quick = settings(
    max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate)
)


def check(message: Message, version: int = 3) -> None:
    """The message fits, says something, has new block ids, and all its markup is ours."""
    payload = message.payload(version)
    assert validate_message(payload) == []
    assert payload["text"].strip()
    assert all(f"v{version}." in block["block_id"] for block in payload["blocks"])
    no_foreign_markup(payload)


def no_foreign_markup(payload: Mapping[str, Any]) -> None:
    """Every <…> is a mention or a date that we made, and nothing hidden is in any string."""
    for text in (*hostile.markup(payload), str(payload.get("text", ""))):
        for inside in re.findall(r"<([^>]*)>?", text):
            assert hostile.OURS.fullmatch(inside), (inside, text)
        assert "UEVIL" not in "".join(re.findall(r"<[^>]*>", text))
    for text in hostile.strings(payload):
        hidden = [c for c in text if c != "\n" and c != "\u200d" and unicodedata.category(c) in ("Cc", "Cf", "Cs")]
        assert hidden == [], text


@quick
@given(hostile.request_views(), POLICIES, st.none() | hostile.money)
def test_request_message(view: RequestView, policy: Policy, cost: Decimal | None) -> None:
    check(request_message(view, policy, CardFacts(cost_usd=cost, keyless=True, boot_s=90, now=START)))
    check(request_details(view, policy))


@quick
@given(hostile.request_views(), POLICIES, OUTCOMES)
def test_results_and_reminders(view: RequestView, policy: Policy, reached: str) -> None:
    check(request_result(view, reached))
    check(reminder(view, policy, START))
    check(reopened_reply(view, policy))


@quick
@given(hostile.session_views(), hostile.money, st.booleans())
def test_direct_messages(view: SessionView, cost: Decimal, yes: bool) -> None:
    check(session_ready_and_ended.ready(view, "/gpu"))
    check(session_ready_and_ended.ready_again(view, changed=yes))
    end_s = int(view.session.deadline.timestamp()) if view.session.deadline else 0
    about = session_ending.Ending(view, end_s, cost, cost, view.session.end_reason, yes, yes)
    check(session_ending.ending(about, "/gpu", START))
    check(session_ending.final_warning(about, START))
    check(session_ready_and_ended.ended(view, cost))


@quick
@given(hostile.texts, hostile.texts, hostile.money)
def test_money(one: str, other: str, amount: Decimal) -> None:
    check(money.budget([BudgetLine(one, other, Period.DAILY, amount, amount, amount)]))
    finished = cost_per_success([FinishedJob(amount, succeeded=True)])
    rows: tuple[tuple[str, Decimal], ...] = ((one, amount), (f"slack:T1/{other}", amount))
    everything = Summary(amount, rows, rows, rows, (one, other), START)
    check(money.summary(everything, everybody=True))
    for period in Period:
        buckets = tuple((after(RollupTier.HOUR, START) + timedelta(hours=n), amount) for n in range(24))
        found = Costs(period, START, amount, amount, amount, buckets, dict.fromkeys(GROUPS, rows), finished)
        check(money.costs(found, everybody=True))


@quick
@given(hostile.texts, hostile.texts, hostile.money)
def test_digest(one: str, other: str, amount: Decimal) -> None:
    running = RunningSession(owner=other, gpu=one, gpu_count=8, request_id="req_x")
    rows: tuple[tuple[str, Decimal], ...] = ((one, amount), (f"slack:T1/{other}", amount)) * 5
    day = START.date()
    found = DigestDocument(
        weekly=len(one) % 2 == 0,
        first=day,
        last=day,
        zone="Europe/Berlin",
        spent_usd=amount,
        before_usd=amount,
        month_usd=amount,
        forecast_usd=amount,
        budgets=(one, other),
        groups=dict.fromkeys(("cloud", "owner", "gpu"), rows),
        days=tuple((day + timedelta(days=n), amount) for n in range(14)),
        running=(running,) * 10,
        running_in_all=500,
        running_usd_h=amount,
        ended_by={one: 300, other: 200},
        saved_usd=amount,
        orphans=(FoundOrphan(id="stray_x", cloud=one, state=other, price_usd_h=amount),) * 10,
        orphans_in_all=11,
        disks_in_all=11,
        anomalies=(one, other),
        unreconciled=(one,) * 9,
    )
    check(digest.digest(found, "/gpu"))


@settings(quick, max_examples=12)
@given(st.lists(hostile.session_views(), max_size=17), st.lists(hostile.requests(), max_size=17), hostile.money)
def test_list(views: list[SessionView], rows: list[Any], cost: Decimal) -> None:
    overview = Overview(tuple(views), tuple(rows))
    costs = {view.session.id: cost for view in views[:1]}
    check(listing(overview, costs, "/gpu", START))


@settings(quick, max_examples=12)
@given(hostile.session_views(), hostile.texts, hostile.money)
def test_the_question_before_an_end(view: SessionView, lost: str, cost: Decimal) -> None:
    check(session_ending.end_question(Stakes(view, cost, lost), START))
    check(session_ending.done_question(Stakes(view, cost, lost, keeps_disk=True), "success", START))


@settings(quick, max_examples=3)
@given(hostile.session_views(), hostile.request_views(), hostile.requests(), hostile.texts, hostile.money)
def test_home(view: SessionView, asked: RequestView, row: Any, one: str, cost: Decimal) -> None:
    overview = Overview((view,) * 500, (row,) * 500)
    lines = [BudgetLine(one, one, Period.DAILY, cost, cost, cost)] * 50
    spent = BriefCosts(cost, cost, ((START, cost),) * DAYS_SHOWN)
    mine = Mine(overview, {view.session.id: cost}, spent, spent, lines, (asked,) * 50, 500, team=(view,) * 500)
    shown = home(mine, "/gpu", START)
    assert validate_view(shown) == []
    no_foreign_markup(shown)


@quick
@given(hostile.request_views(), st.none() | hostile.session_views(), POLICIES, hostile.money, st.sampled_from(Sight))
def test_status(view: RequestView, session: SessionView | None, policy: Policy, cost: Decimal, sight: Sight) -> None:
    facts = CardFacts(cost_usd=cost, session=session)
    check(status(Status(view, session), policy, facts, START, sight, mine=sight is Sight.OWN))


@quick
@given(st.lists(hostile.offers(), max_size=30), hostile.jobs(), hostile.texts, st.lists(hostile.texts, max_size=16))
def test_inventory(offers: list[Offer], job: JobRequest, why: str, notes: list[str]) -> None:
    rows = OfferRows(offers, range(len(offers)))
    excluded = tuple(Excluded("gpu", note, 1, ()) for note in notes)
    cases = Cases(plain_job(), Policy(), {offer.cloud: CLOUDS["vast"] for offer in offers}, whole=False)
    market = OrderedMarket(tuple(offers), np.zeros(len(offers)), excluded, cases)
    answers = tuple(CloudAnswer(note, False, 0, START, note) for note in notes)
    found = MarketListing("0" * 16, job, SortKey.PRICE, rows, market, answers, tuple(notes))
    check(inventory(found, why, "/gpu"))
    check(inventory(found, why, "/gpu", start=len(rows), note="Again."))


@quick
@given(hostile.strays(), hostile.texts)
def test_operators(stray: Orphan, sentence: str) -> None:
    check(operators.orphan_found(stray))
    check(operators.page(sentence))


@quick
@given(hostile.texts, st.booleans())
def test_replies(sentence: str, ok: bool) -> None:
    check(private_answer.answer(Reply(ok, ReplyCode.OK, sentence)))
    check(private_answer.broken(sentence))


@quick
@given(hostile.texts)
def test_grammar_errors(text: str) -> None:
    parsed = parse(text)
    if isinstance(parsed, GrammarError):
        check(help_message.grammar_error(parsed, "/gpu"))


@given(st.sampled_from(["", "provision", "inventory", "list", "status", "terminate", "cancel", "key", "help", "other"]))
def test_help(topic: str) -> None:
    check(help_message.overview("/gpu", topic))
