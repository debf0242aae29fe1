"""Build the request card: one message from the first offers to the end of the session, from the state each time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, assert_never

from bot.blockkit import escape, quote_block
from bot.rules.approvals.approvers import ANYBODY, mentioned_approvers
from bot.rules.approvals.auto_approval import AUTO_APPROVAL_PREFIX
from bot.rules.approvals.break_glass import BREAK_GLASS
from bot.rules.jobs import job_text
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.values.phrases import brief, hour_limit, rate, usd
from bot.services.grants import amendments
from bot.services.runtime import recovery_mode
from bot.slack.blocks import progress, relocation
from bot.slack.blocks import waiting as waiting_card
from bot.slack.blocks.approvals import (
    APPROVE,
    approved_hours,
    approver_names,
    machine_title,
    missing_approvals,
    override_given,
    override_note,
    votes_of,
    waits_for_override,
)
from bot.slack.blocks.elements import (
    SENTENCE_MAX,
    Block,
    Message,
    actions,
    alternatives,
    button,
    clip,
    code,
    context,
    count_words,
    dollars,
    header,
    person,
    safe,
    section,
    when,
)
from bot.slack.blocks.market_gaps import not_read, still_looking
from bot.slack.blocks.offer_terms import (
    card_amounts,
    extended_to,
    how_it_ends,
    limit_held,
    most_reliable,
    price_parts,
    shown_option,
    why_shown,
)
from bot.slack.blocks.offers import line, place
from bot.slack.blocks.private_answer import mentioned
from bot.slack.blocks.waiting import REJECT
from ledger.kernel.actor import Actor
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RENTS, RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Event, Option, Request
from ledger.queries.views import RequestView, SessionView
from providers.cloud_names import cloud_title

CHANGE: Final = "change"
OFFERS: Final = "offers"
ADD_KEY: Final = "addkey"
REASON_MAX: Final = 1_500
#: The most words of a card before its buttons.
WORDS_MAX: Final = 60
#: How much of a reason the card quotes, at least and at most; the details in its thread quote all of a longer one.
QUOTED_LEAST: Final = 40
QUOTED_MAX: Final = 100

_R = RequestState


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Facts that a card shows beside its request.

    `mandate` are its approvers, and nobody of `not_them` may approve it. `keyless`: its requester has no SSH key.
    `boot_s` is how many seconds its recommended cloud takes to boot. `session` is its session, which has cost
    `cost_usd` at the time `now`; `saved_usd` is what ending it early saved. `extends` is the session that a request for
    more time is about. `replaced` is the earlier request that the same message showed before.
    """

    mandate: ApproverGroup = ANYBODY
    not_them: Collection[Actor] = ()
    keyless: bool = False
    boot_s: int | None = None
    session: SessionView | None = None
    cost_usd: Decimal | None = None
    saved_usd: Decimal = Decimal(0)
    extends: SessionView | None = None
    now: datetime | None = None
    replaced: str | None = None
    #: The moves of its session and instances in the journal, so that a start rewrites no earlier time.
    moves: Sequence[Event] = ()


def request_message(view: RequestView, policy: Policy, facts: CardFacts | None = None) -> Message:
    """Build the card of a request."""
    facts = facts or CardFacts()
    request = view.request
    state = request.state
    if state is _R.PENDING:
        parts, body = _pending(view, policy, facts)
    elif state is _R.WAITING:
        parts, body = waiting_card.card(view, policy, free_approvers(view, policy, facts))
    elif state is _R.APPROVED:
        parts, body = _approved(view, policy, facts)
    else:
        parts, body = _without_offers(view)
    if waits := recovery_mode.of_request(view):
        parts, body = [*parts, safe(waits, 600)], [*body, section(f":warning: {safe(waits, 600)}")]
    if facts.replaced:
        said = f"Replaces {code(short_id(facts.replaced))}, which ended undecided."
        parts, body = [*parts, said], [*body, context(said)]
    named = title(view)
    lead = f"{person(request.requester)} asks for {safe(named)} ({short_id(request.id)})."
    return Message(clip(" ".join([lead, *parts]), 3_900), (header(named), *body))


def title(view: RequestView) -> str:
    """Return the headline of a card, unescaped: what is requested or, once approved, what was approved."""
    request, job = view.request, job_of(view.request.job)
    match request.kind:
        case RequestKind.PROVISION | RequestKind.OVERRIDE_12H | RequestKind.VOLUME:
            return machine_title(view)
        case RequestKind.MIGRATE:
            return f"Move to {machine_title(view)}"
        case RequestKind.EXTEND:
            return f"{brief(job.hours)} more for {job_text.gpus(job.gpu)}"
        case RequestKind.OVERSPEND:
            return f"Costs more than approved: {job_text.gpus(job.gpu)}"
        case _:
            assert_never(request.kind)


def _who(view: RequestView, state: str, quoted: int = QUOTED_MAX) -> str:
    """Build the line under the title: the state, the requester, the id and why it is requested."""
    request = view.request
    people = " with ".join([person(request.requester), *filter(None, [", ".join(map(person, view.shared_with))])])
    lead = f"*{state}* · {people} · {code(short_id(request.id))}"
    return f"{lead}\n“{safe(request.reason, quoted)}”" if request.reason else lead


def _pending(view: RequestView, policy: Policy, facts: CardFacts) -> tuple[list[str], list[Block]]:
    request = view.request
    if request.kind is RequestKind.OVERRIDE_12H:
        asked_in = f" {code(short_id(request.parent_id))}" if request.parent_id else ""
        said = f"Above the {hour_limit(policy.max_hours)} limit. Approve it with request{asked_in}."
        return [said], [section(f"{_who(view, 'Waiting for approval')}\n{said}")]
    chosen = shown_option(view)
    who, terms, notes = "", list[str](), list[str]()
    for short in range(4):
        who = _who(view, "Waiting for approval", QUOTED_MAX if short < 3 else QUOTED_LEAST)
        terms = _terms(view, chosen, facts, short) if chosen is not None else []
        notes = [*_limits(view, facts.cost_usd), *_notes(view, policy, facts, short)]
        if count_words(title(view), who, *terms, *notes) <= WORDS_MAX:
            break
    blocks: list[Block] = [section(who), *(section("\n".join(lines)) for lines in (terms, notes) if lines)]
    blocks += _buttons(view, facts) if policy.allow_slack_decisions else []
    needs = _needs(view, policy, facts)
    blocks.append(context(" · ".join(needs)))
    return [*(one.replace("*", "") for one in terms), *notes, *(f"{one}." for one in needs)], blocks


def waiting(view: RequestView, policy: Policy, facts: CardFacts) -> list[str]:
    """Say in a few lines what waits for approval: what, for how much, by whom it is approved and until when."""
    notes = [f":warning: *Above the {hour_limit(policy.max_hours)} limit*"] if waits_for_override(view) else []
    notes += [":key: No SSH key yet."] if facts.keyless else []
    lines = [f"*{safe(title(view))}* is *waiting for approval*."]
    if (option := shown_option(view)) is not None:
        expected_usd, most_usd = card_amounts(view, option, facts.cost_usd)
        where = safe(place(line(option).offer, kind=False))
        lines.append(f"{where} · about {dollars(expected_usd)} · never more than {dollars(most_usd)}")
    return [*lines, *notes, " · ".join(_needs(view, policy, facts))]


def _terms(view: RequestView, option: Option, facts: CardFacts, short: int = 0) -> list[str]:
    """Return the lines about the offer: where, its price and total, when it is ready and when it ends.

    `short` leaves out the most reliable offer (1), which the dialog of offers names, when it is ready (2), and the time
    that the title says, too (3).
    """
    request, one = view.request, line(option)
    time_h = amendments.most_hours(request, view.approvals)
    _, most_usd = card_amounts(view, option, facts.cost_usd)
    job = job_of(request.job)
    is_named = job.gpu.names == (one.offer.gpu,) and job.gpu.count_min == job.gpu.count_max
    which = "" if is_named else f"{safe(one.gpus)} · "
    why = why_shown(view)
    where = place(one.offer, kind=request.kind is not RequestKind.VOLUME)
    lines = [f"{which}{safe(where)}{f' · *{why}*' if why else ''}"]
    about, extra = map(escape, price_parts(view, option))
    lines.append(f"{rate(one.price_usd_h)} · *{about}*{extra} · never more than {dollars(most_usd)}")
    if request.kind in RENTS:
        boot_s = facts.boot_s if short < 2 else None
        lines.append(how_it_ends(job, option, time_h if short < 3 else None, boot_s))
    elif request.kind is RequestKind.EXTEND:
        lines += [*extended_to(view, facts.extends), "Until it's approved, the current end stays."]
    return [*lines, *filter(None, ["" if short else most_reliable(view, option)])]


def _limits(view: RequestView, cost_usd: Decimal | None) -> list[str]:
    """List the limits of all attempts together: what earlier ones cost, and the limit that an approver set."""
    said = [f"Earlier attempts cost {dollars(cost_usd)}."] if cost_usd else []
    held = limit_held(view)
    if held is not None:
        said.append(f"At most {dollars(held.usd)} for all attempts, set by {person(held.by)}.")
    return said


def _notes(view: RequestView, policy: Policy, facts: CardFacts, short: int) -> list[str]:
    """List what to know before approving: a requote and its reason, a change, the limit on hours, a missing key."""
    request = view.request
    notes = [*_again(view), *not_read(view)]
    stands = amendments.amended_terms(request, view.approvals)
    if stands.hours is not None:
        notes.append(f"An approver shortened it to {brief(stands.hours)}.")
    if above := override_note(view, policy, with_time=short < 3):
        notes.append(above)
    if facts.keyless:
        notes.append(f":key: {person(request.requester)} has no SSH key yet, so nobody could log in.")
    return notes


def _needs(view: RequestView, policy: Policy, facts: CardFacts) -> list[str]:
    """Say who has approved, how many approvals are missing and from whom, and until when."""
    request, votes = view.request, votes_of(view)
    names, missing = free_approvers(view, policy, facts), missing_approvals(view)
    more = " more" if votes else ""
    parts = [f":white_check_mark: {approver_names(votes)}"] if votes else []
    if names:
        parts.append(f"Needs {missing}{more} approval{'' if missing == 1 else 's'} from {names}")
    else:
        parts.append("Nobody can approve this: the policy names no other approver")
    if not policy.allow_slack_decisions:
        parts.append(f"Approve in a terminal: {code(f'gpu-shopper approve {short_id(request.id)}')}")
    return [*parts, f"expires {when(request.expires_at)}"]


def free_approvers(view: RequestView, policy: Policy, facts: CardFacts) -> str:
    """Mention the people who can still approve a request; empty for nobody."""
    names = mentioned_approvers(policy, facts.mandate, facts.not_them)
    voted = {ref for vote in votes_of(view) for ref in (vote.approver, vote.on_behalf_of) if ref}
    free = [name for name in names if not any(ref == name or ref.endswith(f"/{name}") for ref in voted)]
    return alternatives(free, missing_approvals(view))


def request_buttons(view: RequestView) -> list[Block]:
    """Build the buttons of a request that is listed elsewhere: approve what its card shows, or reject."""
    if view.request.state is _R.WAITING:
        return waiting_card.buttons(view)
    made = [*_approve_button(view), *_reject_button(view)]
    return [actions(*made)] if made else []


def _buttons(view: RequestView, facts: CardFacts) -> list[Block]:
    approve = _approve_button(view)
    made = list(approve)
    others = len(view.options) - 1
    if approve and others > 0 and not view.request.chosen_option_id:
        label = f"Other offers ({others})"
        made.append(button(label, OFFERS, str(approve[0]["value"]), label=f"Compare it with {others} other offers"))
    if approve and view.request.kind in amendments.CHANGEABLE:
        label = "Approve with a shorter time or a lower limit"
        made.append(button("Change…", CHANGE, str(approve[0]["value"]), label=label))
    made += _reject_button(view)
    if facts.keyless:
        made.append(button("Add SSH key…", ADD_KEY, view.request.id, label="Add your SSH key"))
    return [actions(*made)] if made else []


def mark(view: RequestView) -> str:
    """Return what a button's value adds to its token: the digest of the terms, once an approver changed them."""
    stands = amendments.amended_terms(view.request, view.approvals)
    # A click on a message from before the change must not approve the changed terms, so the button names them.
    return f"/{stands.digest}" if stands.is_changed else ""


def _approve_button(view: RequestView) -> list[Block]:
    option = shown_option(view)
    by_option = {one.option_id: one.token for one in view.tokens if one.action == APPROVE}
    token = by_option.get(option.id) if option is not None else None
    if option is None or token is None:
        return []
    request = view.request
    time_h = amendments.most_hours(request, view.approvals)
    expected = usd(amendments.amounts(request, option, time_h)[0])
    text = f"Approve {expected}"
    label = f"Approve {line(option).name}, about {expected}"
    if waits_for_override(view):
        text = f"Approve {brief(time_h)} ({expected})"
        label = f"Approve {brief(time_h)}, above the limit on hours, for about {expected}"
    return [button(text, f"{APPROVE}:{option.rank}", token + mark(view), style="primary", label=label)]


def _reject_button(view: RequestView) -> list[Block]:
    refuse = [token.token for token in view.tokens if token.action == REJECT]
    return [button("Reject…", REJECT, value, style="danger", label="Reject this request") for value in refuse[:1]]


def _approved(view: RequestView, policy: Policy, facts: CardFacts) -> tuple[list[str], list[Block]]:
    request = view.request
    votes = votes_of(view)
    at = f" {when(request.decided_at)}" if request.decided_at else ""
    by = approver_names(votes) or (person(request.decided_by) if request.decided_by else "the policy")
    approved = f":white_check_mark: *Approved* by {by}{at}."
    given = override_given(view, policy)
    if request.kind not in RENTS:
        less = amendments.amendment_summary(request, votes[-1]) if votes else ""
        said = " ".join(filter(None, [approved[:-1] + (f": {less}." if less else "."), given]))
        said = "\n".join([said, *extended_to(view, facts.extends)])
        return [said], [section(f"{_who(view, 'Approved')}\n{said}")]
    job = progress.job_line(facts.session, facts.now)
    steps = [
        f"{approved} {given}".rstrip(),
        *_by_policy(request),
        *progress.lines(view, facts.cost_usd, facts.saved_usd, facts.moves, job),
        *relocation.lines(view.migration, request.id),
    ]
    headline = progress.headline(view)
    blocks = [section(_who(view, headline)), section("\n".join(steps))]
    figures = _figures(view, facts)
    blocks += [context(" · ".join(figures))] if figures else []
    return [f"Approved by {by}; {headline}.", *steps[1:], *figures], blocks


def _figures(view: RequestView, facts: CardFacts) -> list[str]:
    """Return the figures of an approved request as they are now: offer, hours, price, expectation, cap and cost."""
    option = next((one for one in view.options if one.id == view.request.chosen_option_id), None)
    if option is None:
        return []
    session, known = view.session, facts.session
    over = session is not None and session.ended_at is not None
    hours = approved_hours(view)
    row = view.instances[-1] if view.instances else None
    where = safe(place(line(option).offer) if row is None or row.option_id == option.id else cloud_title(row.cloud))
    parts = [where, rate(row.price_usd_h if row is not None else option.price_usd_h)]
    if over:
        return parts
    expected_usd, _ = amendments.amounts(view.request, option, min(hours, job_of(view.request.job).hours))
    extra_h = max(hours - job_of(view.request.job).hours, Decimal(0))
    expected_usd += extra_h * (row.price_usd_h if row is not None else option.price_usd_h)
    caps = [vote.total_cap_usd for vote in votes_of(view) if vote.total_cap_usd is not None]
    most_usd = known.cap_usd if known is not None and known.cap_usd else min(caps, default=option.worst_usd)
    parts += [brief(hours), f"about {dollars(min(expected_usd, most_usd))}"]
    parts.append(f"never more than {dollars(most_usd)}")
    if facts.cost_usd is not None:
        at = f" ({when(facts.now)})" if facts.now is not None else ""
        parts.append(f"{dollars(facts.cost_usd)} so far{at}")
    return parts


def _by_policy(request: Request) -> list[str]:
    """Name the policy's own rule and its signer, where the policy approved by itself."""
    alone = (request.decided_by or "").startswith(AUTO_APPROVAL_PREFIX) or request.rule.startswith(BREAK_GLASS)
    return [mentioned(safe(request.rule, SENTENCE_MAX))] if alone else []


def _without_offers(view: RequestView) -> tuple[list[str], list[Block]]:
    """Show a request that looks for offers, or that is rejected, cancelled, expired or unavailable."""
    request = view.request
    at = f" {when(request.decided_at)}" if request.decided_at else ""
    outcome = safe(request.outcome, SENTENCE_MAX)
    if request.state is _R.QUOTING:
        lines = [*_again(view), *still_looking(request)]
        lead = [] if request.looking else [":hourglass_flowing_sand: Looking for offers…"]
        return [*lines, *lead], [section("\n".join([_who(view, "Looking for offers"), *lines]))]
    if request.state in (_R.REJECTED, _R.CANCELLED):
        verb = "Rejected" if request.state is _R.REJECTED else "Cancelled"
        said = f":no_entry: *{verb}* by {person(request.decided_by or '')}{at}."
        reason = [quote_block(request.outcome, REASON_MAX)] if request.outcome else []
        return [said, outcome], [section(f"{_who(view, verb)}\n{said}"), *reason]
    if request.state is _R.EXPIRED:
        said = f":alarm_clock: *Expired*. {mentioned(outcome)} Ask again for fresh offers."
        return [said], [section(f"{_who(view, 'Expired')}\n{said}")]
    said = f":mag: {safe(request.outcome, 2_000) or 'No offer fits now.'}"
    return [said], [section(f"{_who(view, 'No offer')}\n{said}")]


def _again(view: RequestView) -> list[str]:
    """Say why the request needs a new decision, when it does."""
    outcome = view.request.outcome
    return [f":arrows_counterclockwise: *Asked again*: {safe(outcome, SENTENCE_MAX)}"] if outcome else []
