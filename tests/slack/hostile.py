"""Rows in every state, filled with text that tries to break a message; nothing here touches a database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.market.estimate import Component, Estimate
from bot.services.market.codec import estimate_to_json, offer_to_json
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from ledger.models import Approval, Instance, Option, Orphan, Quote, Request, Session, Token
from ledger.queries.views import RequestView, SessionView
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from tests.support.clock import START

#: What our own markup may look like: mentions of people we know, groups, channels and dates.
OURS = re.compile(
    r"@U0[A-Z]+|!subteam\^S0[A-Z]+|#C0[A-Z]+|!date\^\d+\^\{date_short_pretty\} \{time\}\|[0-9]{4}-[0-9: UTC-]+"
)
TRICKS = (
    "<!channel>",
    "<@UEVIL>",
    "<https://evil.example|Approve>",
    "*Approved by* <@U0BOB>",
    "```\n*Price* $0.00\n```",
    "&lt;!here&gt; & < > &amp;",
    "\x1b[31mred\x1b[0m\x00",
    "\u202eesrever\u2066\u200b",
    "\n\n\nExpected $0.01\n",
    "_*~`" * 50,
    "😀" * 400,
    "&" * 3_000,
    "x" * 6_000,
    "`",
    " ",
    "\ud800",
)
texts = st.sampled_from(TRICKS) | st.text(max_size=80) | st.lists(st.sampled_from(TRICKS), max_size=3).map(" ".join)
nonempty = texts.filter(bool)
money = st.decimals(Decimal(0), Decimal(10) ** 8, places=6)
refs = st.sampled_from(["slack:T1/U0ALICE", "slack:U0BOB", "operator:ada", "consumer:key", "system:ticker"]) | texts
moments = st.integers(0, 10**9).map(lambda s: START + timedelta(seconds=s))
maybe_moment = st.none() | moments
ids = st.just("req_06gztrs92hymabv2")


def jobs() -> st.SearchStrategy[JobRequest]:
    """Job requests with hostile words wherever a word fits."""
    gpu = st.builds(
        GpuConstraint,
        names=st.lists(nonempty, max_size=6).map(tuple),
        count_min=st.integers(1, 16),
        count_max=st.integers(1, 16),
        memory_gb_min=st.none() | st.just(Decimal(40)),
        memory_gb_max=st.none() | st.just(Decimal(80)) | st.just(Decimal(40)),
    )
    word = st.none() | texts
    return st.builds(
        JobRequest,
        gpu=gpu,
        hours=st.sampled_from([Decimal("0.25"), Decimal(6), Decimal("719.999999")]),
        candidates=st.lists(nonempty, max_size=9).map(tuple),
        regions=st.lists(nonempty, max_size=9).map(tuple),
        spot=st.sampled_from(SpotPolicy),
        max_price_usd_h=st.none() | money,
        budget_cap_usd=st.none() | money,
        min_reliability=st.none() | st.just(Decimal("0.98")),
        image=word,
        run=word,
        model=word,
        offer_id=word,
        reason=texts,
    )


def offers() -> st.SearchStrategy[Offer]:
    """Offers as a hostile cloud would word them."""
    return st.builds(
        Offer,
        cloud=nonempty,
        key=texts,
        gpu=nonempty,
        gpu_count=st.integers(1, 16),
        nodes=st.integers(1, 4),
        memory_gb=st.just(Decimal(24)),
        region=texts,
        spot=st.booleans(),
        price_usd_h=money,
        fetched_at=moments,
        reliability=st.none() | st.just(Decimal("0.9912")),
    )


def _rows(model: type[Any], **columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(model, **columns)


def requests(state: RequestState | None = None) -> st.SearchStrategy[Request]:
    """Requests in one state or in any."""
    return _rows(
        Request,
        id=ids,
        kind=st.sampled_from(["provision", "override_12h"]),
        state=st.sampled_from(RequestState) if state is None else st.just(state),
        quote_version=st.integers(0, 9),
        parent_id=st.none() | ids,
        requester=refs,
        job=jobs().map(stored_job),
        reason=texts,
        channel=texts,
        rule=texts,
        required_approvals=st.integers(1, 2),
        chosen_option_id=st.none() | st.just("opt_0"),
        expires_at=moments,
        created_at=st.just(START),
        decided_at=maybe_moment,
        decided_by=st.none() | refs,
        outcome=texts,
    )


def sessions() -> st.SearchStrategy[Session]:
    """Sessions in any state."""
    return _rows(
        Session,
        id=st.just("ses_06gztrs92h000000"),
        request_id=ids,
        state=st.sampled_from(SessionState),
        owner=refs,
        hours=st.just("6"),
        ready_at=maybe_moment,
        deadline=maybe_moment,
        ended_at=maybe_moment,
        end_reason=texts,
        gpu=texts,
        gpu_count=st.integers(1, 16),
        nodes=st.integers(1, 4),
    )


def instances() -> st.SearchStrategy[Instance]:
    """Instances in any state, with what a hostile cloud says about them."""
    return _rows(
        Instance,
        n=st.integers(1, 9),
        state=st.sampled_from(InstanceState),
        cloud=nonempty,
        name=nonempty,
        price_usd_h=money,
        storage_usd_h=money,
        offer=st.just({}),
        status=texts,
        status_text=texts,
        ref=st.none() | nonempty,
        ssh_host=st.none() | st.just("ssh4.example.com") | texts,
        ssh_port=st.none() | st.integers(1, 65_535),
        ssh_user=st.none() | texts,
        live_at=maybe_moment,
        reachable_at=maybe_moment,
        ended_at=maybe_moment,
        outcome=texts,
    )


def estimated(usd: Decimal, hours: Decimal) -> Estimate:
    """What an option costs, all of it for the GPU."""
    return Estimate(usd, usd, usd, hours, (Component("compute", usd, usd),), ())


@st.composite
def request_views(draw: st.DrawFn, state: RequestState | None = None) -> RequestView:
    """Everything about one request, as hostile and as large as it gets."""
    request = draw(requests(state))
    shown = draw(st.lists(offers(), max_size=draw(st.sampled_from([2, 24]))))
    words = draw(st.lists(texts, min_size=2, max_size=2))
    options = [
        Option(
            id=f"opt_{n}",
            rank=n + 1,
            cloud=offer.cloud,
            offer_key=offer.key,
            price_usd_h=offer.price_usd_h,
            best_usd=offer.price_usd_h,
            expected_usd=offer.price_usd_h,
            worst_usd=offer.price_usd_h,
            marks=words if n < 3 else [],
            why=words[0],
            offer=offer_to_json(offer),
            estimate=estimate_to_json(estimated(offer.price_usd_h or Decimal(0), job_of(request.job).hours)),
        )
        for n, offer in enumerate(shown)
    ]
    actions = [("approve", option.id) for option in options] + [("reject", None), ("approve", None)]
    kept = draw(st.integers(0, len(actions)))
    tokens = [Token(token=f"t{n}", action=action, option_id=of) for n, (action, of) in enumerate(actions[-kept:])]
    votes = [
        Approval(
            approver=draw(refs),
            decision="approve",
            quote_version=request.quote_version,
            price_cap_usd_h=draw(st.none() | money),
            total_cap_usd=draw(st.none() | money),
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    said = [{"sentence": text, "ok": False} for text in draw(st.lists(texts, max_size=16))]
    session = draw(st.none() | sessions())
    return RequestView(
        request,
        draw(st.none() | st.just(Quote(excluded=said, clouds=said))),
        tuple(options),
        tuple(tokens),
        tuple(votes),
        session,
        tuple(draw(st.lists(instances(), max_size=6))) if session else (),
        None,
        draw(st.none() | requests(RequestState.PENDING)),
    )


@st.composite
def session_views(draw: st.DrawFn) -> SessionView:
    """A session with or without an instance."""
    return SessionView(draw(sessions()), draw(requests()), draw(st.none() | instances()), None, draw(money), None)


def strays() -> st.SearchStrategy[Orphan]:
    """Strays in any state."""
    return _rows(
        Orphan,
        cloud=nonempty,
        ref=nonempty,
        state=st.sampled_from(OrphanState),
        price_usd_h=money,
        first_seen_at=moments,
        reason=texts,
    )


def strings(value: Any) -> Iterator[str]:
    """Every string in a payload."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def markup(value: Any) -> Iterator[str]:
    """Every string that Slack parses as mrkdwn: the text of the message and every mrkdwn object."""
    if isinstance(value, dict):
        if value.get("type") == "mrkdwn":
            yield value["text"]
        for item in value.values():
            yield from markup(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from markup(item)
