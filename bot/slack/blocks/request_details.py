"""Build the replies in the thread of a request: its details, once a quote version, and calls for a decision."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final

from bot.blockkit import quote_block
from bot.rules.approvals.approvers import groups
from bot.rules.checkpoints.verification import choice
from bot.rules.jobs.stored import job_of, job_with_people
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import brief, plural, rate, reliability
from bot.services.market.codec import most_line
from bot.slack.blocks import job as job_words
from bot.slack.blocks.elements import (
    SENTENCE_MAX,
    Block,
    Message,
    clip,
    code,
    dollars,
    person,
    safe,
    section,
    when,
)
from bot.slack.blocks.market_gaps import copied
from bot.slack.blocks.offer_terms import card_amounts
from bot.slack.blocks.offers import left_out, line, place, reasons
from bot.slack.blocks.request import QUOTED_LEAST, REASON_MAX, CardFacts, free_approvers
from ledger.kernel.request_kind import RENTS
from ledger.kernel.states import RequestState
from ledger.models import Option
from ledger.queries.views import RequestView

#: A section holds 3,000 characters; so many offers of the longest words fit.
OFFERS_MAX: Final = 10


def request_details(view: RequestView, policy: Policy) -> Message:
    """Build the details of one quote: how each price is made, what was left out and why, and the policy's rule."""
    request, quote = view.request, view.quote
    lines = [line(option) for option in view.options[:OFFERS_MAX]]
    silent = [str(cloud.get("sentence", "")) for cloud in (quote.clouds if quote else []) if not cloud.get("ok")]
    excluded = [str(reason.get("sentence", "")) for reason in (quote.excluded if quote else [])]
    blocks: list[Block] = [section(f"*How each total is made* (quote {request.quote_version})")]
    if len(request.reason) > QUOTED_LEAST:
        blocks.append(quote_block(request.reason, REASON_MAX))
    if request.kind in RENTS:
        job = job_with_people(request.job, share=view.shared_with, secrets=view.secrets)
        blocks.append(section(f"*Requested*: {job_words.details(job)}"))
    blocks += [section(_priced(view, option)) for option in view.options[:OFFERS_MAX]]
    blocks += [block for block in (reasons(lines), left_out(excluded, filter(None, silent))) if block is not None]
    blocks += [section(read)] if (read := copied(view)) else []
    rule = [safe(request.rule, SENTENCE_MAX), safe(choice(policy, job_of(request.job).checkpoint), 600)]
    said = " ".join(filter(None, rule))
    blocks += [section(f"*Rule*: {said}")] if said else []
    text = f"How each total is made (quote {request.quote_version}): {plural(len(lines), 'offer')}. {said}"
    return Message(clip(text, 3_900), tuple(blocks))


def _priced(view: RequestView, option: Option) -> str:
    """Write one offer with what its price and the most that it may cost are made of, from the ledger's numbers."""
    one, (_, most_usd) = line(option), card_amounts(view, option, None)
    trust = "" if one.offer.reliability is None else f" · reliability {reliability(one.offer.reliability)}"
    lead = f"*#{one.rank}* {safe(one.gpus, 80)} · {safe(place(one.offer))}{trust} · {code(one.offer.id, 80)}"
    made_of = f" = {safe(one.parts, 200)}" if one.parts else ""
    totals = f"{rate(one.price_usd_h)} · about {dollars(one.expected_usd)}{made_of}"
    hold = f"\n{safe(one.hold)}" if one.hold else ""
    # A limit that somebody set is lower than the parts, so they would not add up to it.
    most = "the limit that was set" if most_usd < one.worst_usd else safe(most_line(option), 400)
    return f"{lead}\n{totals}\nNever more than {dollars(most_usd)}{f': {most}' if most else ''}{hold}"


def reopened_reply(view: RequestView, policy: Policy, facts: CardFacts | None = None) -> Message:
    """Reply in the thread that approvers must decide again: an approval bought nothing, or its person asked again."""
    request = view.request
    why = f" {safe(request.outcome, SENTENCE_MAX)}" if request.outcome else ""
    said = f"the request of {person(request.requester)} needs a new decision.{why}"
    if request.quote_version <= 1:
        said = f"{person(request.requester)} has a new request, which the message above shows."
    text = f":arrows_counterclockwise: {_called(view, policy, facts)}{said} It expires {when(request.expires_at)}."
    return Message.of(text)


def reminder(view: RequestView, policy: Policy, now: datetime, facts: CardFacts | None = None) -> Message:
    """Remind the approvers in the thread of a request that still waits, and the groups that it was escalated to."""
    request, facts = view.request, facts or CardFacts()
    if request.state is not RequestState.PENDING:
        became = "expired" if request.state is RequestState.EXPIRED else f"was {request.state}"
        return Message.of(f":bell: {person(request.requester)} waited for approval; the request {became}.")
    waited = brief(Decimal(max(60, int((now - request.created_at).total_seconds()))) / 3600)
    said = f"{person(request.requester)} has waited {waited} for approval; it expires {when(request.expires_at)}."
    onwards = ", ".join(groups(policy, facts.mandate)[1:])
    said += f" {safe(onwards)} can approve it now, too." if onwards else ""
    return Message.of(f":bell: {_called(view, policy, facts)}{said}")


def _called(view: RequestView, policy: Policy, facts: CardFacts | None) -> str:
    names = free_approvers(view, policy, facts or CardFacts())
    return f"{names}: " if names else ""
