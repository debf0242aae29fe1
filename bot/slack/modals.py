"""Build the dialogs: request GPUs or more time, give a rejection's reason, confirm or change an approval.

The private metadata of a dialog about an approval is the button's opaque token and, after a change, the digest of the
terms that the approver saw and the time that they set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from bot.blockkit import plain
from bot.rules.grammar.job_words import LIMIT_WORDS
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import hours, rate, short_hours, usd
from bot.slack.blocks.elements import Block, code, context, dollars, person, safe, section
from ledger.kernel.request_kind import RequestKind
from ledger.queries.views import RequestView
from providers.gpus.table import GPUS

PROVISION: Final = "provision"
REJECT: Final = "reject"
AMOUNT: Final = "amount"
PLAN: Final = "plan"
EXTEND: Final = "extend"
CHANGE: Final = "change"

INPUT_MAX: Final = 3_000
_GPU_OPTIONS: Final = 100

View = dict[str, Any]


def provision(channel: str, clouds: Iterable[str], policy: Policy) -> View:
    """Build the form for `/gpu provision` without words. The block ids are the words of the grammar."""
    names = [_option(name) for name in list(GPUS)[:_GPU_OPTIONS]]
    known = [_option(cloud) for cloud in clouds][:_GPU_OPTIONS]
    spot = [_option("no", "No, on-demand only"), _option("any", "Either"), _option("yes", "Yes, spot only")]
    longest = f"up to {hours(policy.max_hours)} without a second approval"
    needed = f"Fill in this, or below what runs; {longest}."
    work = "Its time follows from it; then GPU and number may be left to the plan, too."
    blocks = [
        _input("gpu", "GPU", _select(names, "Choose a GPU"), optional=True, hint="Choose one here or type it below."),
        _input("typed", "or type it", _text("4090, A100-80GB"), optional=True, hint="Several are separated by commas."),
        _input("count", "How many", _text("1, or 2-4"), optional=True, hint="1 unless you say more."),
        _input("hours", "For how long", _text("6h, 90m, 1h30m"), optional=True, hint=needed),
        _input("work", "or what runs", _text("model=7B tokens=2B seq=2048"), optional=True, hint=work),
        _input("disk", "Disk in GB", _text("100"), optional=True),
        _input("max", "Most it may cost in all", _text("$50"), optional=True),
        _input("price", "Most per hour", _text("$2.50"), optional=True, hint="For all GPUs together."),
    ]
    limits = _text("verified=yes total=160GB cuda=12.4 reliability=98%")
    blocks.append(_input("limits", "Further limits", limits, optional=True, hint=f"Words: {', '.join(LIMIT_WORDS)}."))
    if known:
        picked = {"type": "multi_static_select", "action_id": "in", "options": known}
        blocks.append(_input("clouds", "Only these clouds", picked, optional=True))
    blocks.append(_input("spot", "May it be interrupted (spot)?", _select(spot, "No", initial=spot[0])))
    why = _text("fine-tune of the summariser", multiline=True, longest=policy.max_reason_chars)
    blocks.append(_input("for", "What for", why, optional=True, hint="Approvers read this."))
    button = {"type": "button", "action_id": "plan:form", "text": plain("Show what it would cost", 75)}
    blocks.append({"type": "actions", "block_id": "plan", "elements": [button]})
    return _modal(PROVISION, RequestKind.PROVISION.label, blocks, "Ask", channel)


def planned(blocks: Sequence[Block]) -> View:
    """Show a plan on top of the form that it was made from."""
    return _modal(PLAN, "Plan", list(blocks)[:100])


def reject(token: str, policy: Policy) -> View:
    """Ask for the reason; Slack itself requires one."""
    why = _text("What should be changed?", multiline=True, longest=policy.max_reason_chars)
    blocks = [_input("reason", "Reason", why, hint="The requester reads this.")]
    return _modal(REJECT, "Reject the request", blocks, "Reject", token)


def extend(meta: str, policy: Policy) -> View:
    """Ask how much more time and why; `meta` is the value of the button that opened the dialog."""
    why = _text("one more epoch", multiline=True, longest=policy.max_reason_chars)
    beyond = f"Needed above {hours(policy.max_hours)} in all. Approvers read it."
    blocks = [
        _input("hours", "How much more", _text("1h, 90m")),
        _input("for", "What for", why, optional=True, hint=beyond),
        context("Time that is already approved is added at once. More time needs an approval."),
    ]
    return _modal(EXTEND, RequestKind.EXTEND.label, blocks, "Ask", meta)


@dataclass(frozen=True, slots=True)
class ConfirmedSpend:
    """What an approver confirms. Amounts are dollars for the whole run, `time_h` hours.

    `limit_usd` is what an approver set for all attempts together, and `spent_usd` what earlier ones cost.
    """

    offer_id: str
    expected_usd: Decimal
    worst_usd: Decimal
    price_usd_h: Decimal
    time_h: Decimal
    limit_usd: Decimal | None = None
    limit_by: str = ""
    spent_usd: Decimal = Decimal(0)


def amount(token: str, spend: ConfirmedSpend, problem: str = "") -> View:
    """Ask the approver to type the expected total; `problem` says what was wrong before."""
    facts = [
        f"*Expected total* {dollars(spend.expected_usd)}",
        f"*At worst* {dollars(spend.worst_usd)}",
        f"*Time* {hours(spend.time_h)} at {rate(spend.price_usd_h)}",
        f"*Offer* {code(spend.offer_id)}",
    ]
    hint = "Empty: the worst case is the limit."
    if spend.spent_usd > 0:
        facts.append(f"*Earlier attempts* {dollars(spend.spent_usd)}")
        hint = "For all attempts together. Empty: the worst case is the limit of this one."
    if spend.limit_usd is not None:
        facts.append(f"*Limit for all attempts* {dollars(spend.limit_usd)}, set by {person(spend.limit_by)}")
        hint = f"For all attempts together. Empty: {usd(spend.limit_usd)} stays the limit; another amount replaces it."
    blocks: list[Block] = [section(f":warning: {safe(problem, 500)}")] if problem else []
    blocks += [
        section("\n".join(facts)),
        _input("amount", f"Type {usd(spend.expected_usd)} to confirm", _text("123.45")),
        _input("cap", "Limit for the total", _text("$80"), optional=True, hint=hint),
        context("The approval is recorded under your name."),
    ]
    return _modal(AMOUNT, "Confirm the amount", blocks, "Approve", token)


def offers_of(view: RequestView) -> list[tuple[str, str]]:
    """List `(the button's token, what it approves)` of each option that can still be chosen, the best one first."""
    names = {one.id: f"#{one.rank} {one.offer_id} {usd(one.expected_usd)}" for one in view.options}
    chosen = view.request.chosen_option_id
    return [
        (token.token, names[token.option_id])
        for token in sorted(view.tokens, key=lambda one: list(names).index(one.option_id or "") if one.option_id else 0)
        if token.action == "approve" and token.option_id in names and chosen in (None, token.option_id)
    ]


def change(
    meta: str,
    offers: Sequence[tuple[str, str]],
    most_hours: Decimal,
    problem: str = "",
    typed: tuple[str, str] = ("", ""),
) -> View:
    """Approve with changes: another shown offer, a shorter time, a lower limit; each may stay as it is.

    `problem` says what was wrong with the `(time, limit)` that were typed before; the form shows them again.
    """
    shown = [_option(token, label) for token, label in offers][:_GPU_OPTIONS]
    first = next((one for one in shown if one["value"] == meta.partition("/")[0]), shown[0])
    time, limit = _text(short_hours(most_hours), typed[0]), _text("$80", typed[1])
    blocks: list[Block] = [section(f":warning: {safe(problem, 500)}")] if problem else []
    blocks += [
        _input("offer", "Offer", _select(shown, "Offer", initial=first)),
        _input("hours", "For how long", time, optional=True, hint="Shorter, never longer."),
        _input("cap", "Limit for the total", limit, optional=True, hint="Lower, never above the worst case."),
        context("The requester sees what you changed. The approval is recorded under your name."),
    ]
    return _modal(CHANGE, "Approve with changes", blocks, "Approve", meta)


def _modal(callback: str, title: str, blocks: list[Block], submit: str = "", metadata: str = "") -> View:
    """Build a dialog; without `submit` it only shows something."""
    form = {"submit": plain(submit, 24), "private_metadata": metadata} if submit else {}
    head = {"type": "modal", "callback_id": callback, "title": plain(title, 24), "close": plain("Back", 24)}
    return {**head, **form, "blocks": blocks}


def _input(block_id: str, label: str, element: Block, *, optional: bool = False, hint: str = "") -> Block:
    block: Block = {
        "type": "input",
        "block_id": block_id,
        "label": plain(label, 200),
        "element": element,
        "optional": optional,
    }
    return {**block, "hint": plain(hint, 200)} if hint else block


def _text(placeholder: str, typed: str = "", *, multiline: bool = False, longest: int = 200) -> Block:
    return {
        **({"initial_value": typed} if typed else {}),
        "type": "plain_text_input",
        "action_id": "in",
        "placeholder": plain(placeholder, 150),
        "multiline": multiline,
        "max_length": min(longest, INPUT_MAX),
    }


def _select(options: list[Block], placeholder: str, *, initial: Block | None = None) -> Block:
    element: Block = {
        "type": "static_select",
        "action_id": "in",
        "placeholder": plain(placeholder, 150),
        "options": options,
    }
    return {**element, "initial_option": initial} if initial else element


def _option(value: str, label: str = "") -> Block:
    return {"text": plain(label or value, 75), "value": value[:150]}
