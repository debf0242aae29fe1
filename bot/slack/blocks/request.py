"""Build the message about one request, from its first offers to its outcome, from the state each time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, assert_never

from bot.blockkit import quote_block
from bot.rules.approvals.approvers import ANYBODY, mentioned_approvers
from bot.rules.approvals.auto_approval import STANDING_PREFIX
from bot.rules.approvals.break_glass import BREAK_GLASS
from bot.rules.approvals.decision import SLACK_OFF
from bot.rules.checkpoints.verification import choice
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.pricing.spend_limits import SetLimit, limit_in_force
from bot.rules.values.phrases import hours, plural, rate, usd
from bot.rules.values.phrases import no_key as keyless
from bot.services.grants import amendments
from bot.services.runtime import recovery_mode
from bot.slack.blocks import job as job_words
from bot.slack.blocks import progress
from bot.slack.blocks.elements import (
    SENTENCE_MAX,
    Block,
    Message,
    actions,
    button,
    clip,
    code,
    confirm,
    context,
    dollars,
    header,
    mentions,
    person,
    safe,
    section,
    when,
)
from bot.slack.blocks.offers import OfferLine, left_out, line, offers_table, price_block, reasons, spoken
from bot.slack.blocks.private_answer import mentioned
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Approval, Request
from ledger.queries.views import RequestView

APPROVE: Final = "approve"
REJECT: Final = "reject"
CHANGE: Final = "change"
BUTTONS_MAX: Final = 20
REASON_MAX: Final = 1_500

_R = RequestState


def no_key(requester: str, command: str) -> str:
    """Warn, before anything is bought, that the requester has no SSH key to log in with."""
    example = code(f"{command} key add ssh-ed25519 AAAA…")
    return f":key: {keyless(person(requester), example)}"


def request_message(
    view: RequestView,
    policy: Policy,
    cost_usd: Decimal | None = None,
    hints: tuple[str, ...] = (),
    mandate: ApproverGroup = ANYBODY,
) -> Message:
    """Build the message about a request.

    `cost_usd` is what its session has cost so far, `hints` what to know before approving it, `mandate` its approvers.
    """
    request = view.request
    job = request.job
    extra = request.kind is not RequestKind.PROVISION
    title = _title(request.kind, job_words.title(job), policy)
    lead = f"{person(request.requester)} asks for *{safe(job_words.title(job))}* · {code(short_id(request.id))}"
    if request.kind is RequestKind.OVERSPEND:
        lead = f"The *{safe(job_words.title(job))}* of {person(request.requester)} · {code(short_id(request.id))}"
    blocks = [header(title), section(lead if extra else f"{lead}\n{job_words.details(job)}")]
    if request.reason:
        blocks.append(quote_block(request.reason, REASON_MAX))
    lines = [line(option) for option in view.options[:BUTTONS_MAX]]
    parts, body = _body(view, AskedApprovers(policy, mandate), lines, cost_usd, hints)
    spoken_text = [
        f"{person(request.requester)} asks for {safe(job_words.title(job))} ({short_id(request.id)}).",
        *parts,
    ]
    if waits := recovery_mode.of_request(view):
        body = [*body, section(f":warning: {safe(waits, 600)}")]
        spoken_text.append(safe(waits, 600))
    if request.reason:
        spoken_text.insert(1, f"Reason: “{safe(request.reason, SENTENCE_MAX)}”.")
    return Message(clip(" ".join(spoken_text), 3_900), (*blocks, *body))


def _title(kind: RequestKind, what: str, policy: Policy) -> str:
    """Return the headline of the message: what is requested, and for which job."""
    match kind:
        case RequestKind.PROVISION:
            return what
        case RequestKind.EXTEND | RequestKind.OVERSPEND:
            return f"{kind.label}: {what}"
        case RequestKind.OVERRIDE_12H:
            return f"More than {hours(policy.max_hours)}: {what}"
        case _:
            assert_never(kind)


@dataclass(frozen=True, slots=True)
class AskedApprovers:
    """The approvers of a request, and whether they can approve it in Slack."""

    policy: Policy
    mandate: ApproverGroup = ANYBODY

    @property
    def names(self) -> str:
        """Name the approvers who receive the message, as mentions."""
        return mentions(mentioned_approvers(self.policy, self.mandate))

    @property
    def here(self) -> bool:
        """Whether the buttons in Slack work for approvers."""
        return self.policy.allow_slack_decisions


def _body(
    view: RequestView, who: AskedApprovers, lines: list[OfferLine], cost_usd: Decimal | None, hints: tuple[str, ...]
) -> tuple[list[str], list[Block]]:
    """Return what the state adds: sentences for the text, and blocks."""
    state = view.request.state
    if state is _R.QUOTING:
        said = "Asking the clouds for offers…"
        return [*_again(view), said], [*map(section, _again(view)), section(f":hourglass_flowing_sand: {said}")]
    if state is _R.PENDING:
        if view.request.kind is RequestKind.OVERRIDE_12H:
            return _pending_override(view, who)
        kept = choice(who.policy, view.request.job.checkpoint)
        return _pending(view, who, lines, [*_limits(view, cost_usd), *filter(None, (safe(kept, 600),)), *hints])
    if state is _R.APPROVED:
        return _approved(view, lines, cost_usd)
    return _closed(view)


def _limits(view: RequestView, cost_usd: Decimal | None) -> list[str]:
    """List the limits of all attempts together: what earlier ones cost, and the limit that an approver set."""
    said = [f"Earlier attempts cost {dollars(cost_usd)}."] if cost_usd else []
    held = limit_in_force(
        SetLimit(vote.quote_version, vote.limit_usd, vote.approver)
        for vote in view.approvals
        if vote.limit_usd is not None
    )
    if held is not None:
        said.append(f"At most {dollars(held.usd)} for all attempts, as {person(held.by)} said.")
    return said


def _pending(
    view: RequestView, who: AskedApprovers, lines: list[OfferLine], limits: list[str]
) -> tuple[list[str], list[Block]]:
    waits = view.override is not None and view.override.state is _R.PENDING
    chosen = _chosen(view, lines)
    quote = view.quote
    silent = [str(cloud.get("sentence", "")) for cloud in (quote.clouds if quote else []) if not cloud.get("ok")]
    absent = [sentence for sentence in silent if sentence]
    excluded = [str(reason.get("sentence", "")) for reason in (quote.excluded if quote else [])]
    again, rule = _again(view), [*limits, *_rule(view, who)]
    if waits:
        rule.append("The 12-hour override needs an approval first, in its own message.")
    blocks = [section(sentence) for sentence in again]
    blocks += [offers_table(lines)] if lines else []
    blocks += [block for block in (reasons(lines), left_out(excluded, absent)) if block is not None]
    blocks.append(section("\n".join(rule)))
    blocks += _buttons(view, chosen or lines, approve=not waits) if who.here else []
    blocks.append(price_block(chosen or lines, view.request.quote_version))
    parts = [*again, *(f"{spoken(one)};" for one in lines), *rule]
    return parts, blocks


def _pending_override(view: RequestView, who: AskedApprovers) -> tuple[list[str], list[Block]]:
    asked_in = f" {code(short_id(view.request.parent_id))}" if view.request.parent_id else ""
    rule = [*_rule(view, who), f"This approves the time alone. The cost needs its own approval in request{asked_in}."]
    return rule, [section("\n".join(rule)), *(_buttons(view, [], approve=True) if who.here else [])]


def _rule(view: RequestView, who: AskedApprovers) -> list[str]:
    """Say which rule requires the approval, how many there are, who approves, and until when."""
    request = view.request
    parts = [safe(request.rule, SENTENCE_MAX)] if request.rule else []
    votes = _votes(view)
    if votes or request.required_approvals > 1:
        by = f" ({_names(votes)})" if votes else ""
        parts.append(f"*{len(votes)} of {plural(request.required_approvals, 'approval')}*{by}.")
    stands = amendments.amended_terms(request, view.approvals)
    if stands.hours is not None:
        parts.append(f"An approver has shortened it to {hours(stands.hours)}.")
    parts.append(f"May decide: {who.names or 'nobody yet; the policy names no approver'}.")
    if not who.here:
        parts.append(f"{SLACK_OFF.sentence} {code(f'gpu-shopper approve {short_id(request.id)}')}")
    parts.append(f"Expires {when(request.expires_at)}.")
    return parts


def request_buttons(view: RequestView) -> list[Block]:
    """Build the buttons: approve the best option (or the one that the first approver chose), or reject."""
    waits = view.override is not None and view.override.state is _R.PENDING
    lines = [line(option) for option in view.options[:BUTTONS_MAX]]
    return _buttons(view, _chosen(view, lines) or lines[:1], approve=not waits, change=False)


def _buttons(view: RequestView, lines: Iterable[OfferLine], *, approve: bool, change: bool = True) -> list[Block]:
    by_option = {token.option_id: token.token for token in view.tokens if token.action == APPROVE}
    by_rank = {option.rank: option for option in view.options}
    stands = amendments.amended_terms(view.request, view.approvals)
    # A click on a message from before the change must not approve the changed terms, so the button names them.
    mark = f"/{stands.digest}" if stands.is_changed else ""
    made: list[Block] = []
    for one in lines if approve else ():
        token = by_option.get(by_rank[one.rank].id)
        if token is not None:
            time_h = amendments.most_hours(view.request, view.approvals)
            expected = usd(amendments.amounts(view.request, by_rank[one.rank], time_h)[0])
            label = f"Approve {one.name}, expected {expected}"
            text = f"Approve #{one.rank} {one.offer.cloud} {expected}"
            style = "" if made else "primary"
            made.append(button(text, f"{APPROVE}:{one.rank}", token + mark, style=style, label=label))
    if made and change and view.request.kind in amendments.CHANGEABLE:
        other = "" if view.request.kind is RequestKind.EXTEND else " or another offer"
        label = f"Approve with a shorter time{',' if other else ' or'} a lower limit{other}"
        made.append(button("Change…", CHANGE, str(made[0]["value"]), label=label))
    if approve and None in by_option:
        job = view.request.job
        said = f"Allow {hours(job.hours + job.already_hours)}"
        question = confirm(
            RequestKind.OVERRIDE_12H.label, f"{said}? The spend itself is approved separately.", said[:30]
        )
        style = "" if made else "primary"
        made.append(button(said, f"{APPROVE}:time", by_option[None], style=style, confirm=question))
    refuse = [token.token for token in view.tokens if token.action == REJECT]
    made += [button("Reject…", REJECT, value, style="danger", label="Reject this request") for value in refuse[:1]]
    return [actions(*made)] if made else []


def _approved(view: RequestView, lines: list[OfferLine], cost_usd: Decimal | None) -> tuple[list[str], list[Block]]:
    request = view.request
    votes = _votes(view)
    at = f" {when(request.decided_at)}" if request.decided_at else ""
    by = _names(votes) or (person(request.decided_by) if request.decided_by else "the policy")
    if said := _allowed(request, votes, f"{by}{at}"):
        return [said], [section(said)]
    chosen = _chosen(view, lines)
    what = f": {safe(chosen[0].name)} ({code(chosen[0].offer.id)})" if chosen else ""
    steps = [f":white_check_mark: *Approved* by {by}{at}{what}.", *_by_policy(request), *progress.lines(view, cost_usd)]
    blocks = [section("\n".join(steps))]
    if chosen:
        blocks.append(_bought(chosen[0], votes, request.quote_version, cost_usd))
    return [f"Approved by {by}{what}; {progress.headline(view)}.", *steps[1:]], blocks


def _allowed(request: Request, votes: list[Approval], by: str) -> str:
    """Say what the approval allows about a session that exists; "" for a request that starts one."""
    match request.kind:
        case RequestKind.PROVISION:
            return ""
        case RequestKind.OVERRIDE_12H:
            return f":white_check_mark: The time is allowed by {by}."
        case RequestKind.EXTEND:
            less = amendments.amendment_summary(request, votes[-1]) if votes else ""
            return f":white_check_mark: The extra time is approved by {by}{f': {less}' if less else ''}."
        case RequestKind.OVERSPEND:
            return f":white_check_mark: What it will cost is confirmed by {by}."
        case _:
            assert_never(request.kind)


def _by_policy(request: Request) -> list[str]:
    """Name the policy's own rule and its signer, where the policy approved by itself."""
    alone = (request.decided_by or "").startswith(STANDING_PREFIX) or request.rule.startswith(BREAK_GLASS)
    return [mentioned(safe(request.rule, SENTENCE_MAX))] if alone else []


def _bought(one: OfferLine, votes: list[Approval], version: int, cost_usd: Decimal | None) -> Block:
    """Show the price block after the approval: the approved offer, its limits, and the cost so far."""
    caps = [vote.total_cap_usd for vote in votes if vote.total_cap_usd is not None]
    rates = [vote.price_cap_usd_h for vote in votes if vote.price_cap_usd_h is not None]
    parts = [f"{rate(one.price_usd_h)} · expected {dollars(one.expected_usd)}"]
    parts += [f"at most {rate(min(rates))} and {dollars(min(caps))} in all"] if caps and rates else []
    parts += [f"so far {dollars(cost_usd)}"] if cost_usd is not None else []
    return context(f"*Price* (quote {version}, from the ledger)\n" + " · ".join(parts))


def _closed(view: RequestView) -> tuple[list[str], list[Block]]:
    """Show a request that is rejected, cancelled, expired or unavailable: no buttons, the person and the reason."""
    request = view.request
    at = f" {when(request.decided_at)}" if request.decided_at else ""
    if request.state in (_R.REJECTED, _R.CANCELLED):
        verb = "Rejected" if request.state is _R.REJECTED else "Cancelled"
        said = f":no_entry: *{verb}* by {person(request.decided_by or '')}{at}."
        reason = [quote_block(request.outcome, REASON_MAX)] if request.outcome else []
        return [said, safe(request.outcome, SENTENCE_MAX)], [section(said), *reason]
    if request.state is _R.EXPIRED:
        said = f":alarm_clock: *Expired*. {safe(request.outcome, SENTENCE_MAX)} Ask again for fresh offers."
        return [said], [section(said)]
    said = f":mag: *Nothing to offer*. {safe(request.outcome, 2_000)}"
    return [said], [section(said)]


def _again(view: RequestView) -> list[str]:
    """Say why the request needs a new decision, when it does."""
    outcome = view.request.outcome
    return [f":arrows_counterclockwise: *Asked again*: {safe(outcome, SENTENCE_MAX)}"] if outcome else []


def _votes(view: RequestView) -> list[Approval]:
    version = view.request.quote_version
    return [vote for vote in view.approvals if vote.decision == APPROVE and vote.quote_version == version]


def _names(votes: list[Approval]) -> str:
    return " and ".join(_voter(vote) for vote in votes[:4])


def _voter(vote: Approval) -> str:
    place = f" for {person(vote.on_behalf_of)}" if vote.on_behalf_of else ""
    return person(vote.approver) + place


def _chosen(view: RequestView, lines: list[OfferLine]) -> list[OfferLine]:
    """Return the approved option alone; nothing before the first approval."""
    pairs = zip(lines, view.options, strict=False)
    return [one for one, option in pairs if view.request.chosen_option_id == option.id]


def reopened_reply(view: RequestView, policy: Policy, mandate: ApproverGroup = ANYBODY) -> Message:
    """Reply in the thread of a request whose approval bought nothing: its approvers must approve again."""
    request = view.request
    who = AskedApprovers(policy, mandate).names
    said = f"the request of {person(request.requester)} has *new offers*"
    why = f" {safe(request.outcome, SENTENCE_MAX)}" if request.outcome else ""
    offers = f"The new offers (quote {request.quote_version}) are above; it expires {when(request.expires_at)}."
    text = f":arrows_counterclockwise: {who + ': ' if who else ''}{said}.{why} {offers}"
    return Message.of(text)


def reminder(
    view: RequestView, policy: Policy, now: datetime, mandate: ApproverGroup = ANYBODY, onwards: str = ""
) -> Message:
    """Remind the approvers in the thread of a request that still waits.

    `onwards` names the people who may approve it too from now on.
    """
    request = view.request
    waited = hours(Decimal(max(60, int((now - request.created_at).total_seconds()))) / 3600)
    who = AskedApprovers(policy, mandate).names
    said = f"{person(request.requester)} asked {waited} ago and waits for an approval"
    said += f"; {safe(onwards)} can approve it too now" if onwards else ""
    text = f":bell: {who + ': ' if who else ''}{said}; it expires {when(request.expires_at)}."
    return Message.of(text)
