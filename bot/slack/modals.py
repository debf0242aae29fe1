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
from bot.rules.grammar.job import listed_presets
from bot.rules.jobs.facet_table import NARROWING
from bot.rules.policy.policy import Policy
from bot.rules.pricing import hours_cap
from bot.rules.pricing.hours_cap import DurationOutcome
from bot.rules.stacks.stack import STACKS
from bot.rules.values.phrases import at_rate, hours, short_hours, usd
from bot.slack.blocks.elements import Block, actions, button, code, context, dollars, person, safe, section
from bot.slack.blocks.offer_terms import OfferChoice
from ledger.kernel.request_kind import RequestKind
from providers.gpus.table import GPUS

PROVISION: Final = "provision"
REJECT: Final = "reject"
AMOUNT: Final = "amount"
PLAN: Final = "plan"
EXTEND: Final = "extend"
CHANGE: Final = "change"
OFFERS: Final = "offers"
KEY: Final = "key"
SECRET: Final = "secret"  # noqa: S105 # The name of a dialog.

INPUT_MAX: Final = 3_000
#: The start of the actions of the fields of the form that change its price.
FORM: Final = "form:"
#: The choice that leaves the GPU, or the time, to what the run needs.
ANY: Final = "any"
RUN_LONG: Final = "As long as the run takes"
AS_PRESET: Final = "As in the preset"
#: The choice of no preset; no preset can have this name.
NO_PRESET: Final = "-"
WHAT_FOR: Final = "What for? (approvers read this)"
PRICE_LATER: Final = "Reading prices…"
_GPU_OPTIONS: Final = 100
_TIMES: Final = tuple(map(Decimal, ("0.5", "1", "1.5", *range(2, 13), 16, 20, 24, 36, 48, 72, 96, 120, 168, 336)))

View = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProvisionForm:
    """What the form for a request shows; with `more` all its fields, else GPU, time and what it is for.

    `gpus` are the models for sale as `(value, label)`, without them every known one. `gpu`, `hours` and `preset` are
    chosen. `price` is mrkdwn.
    """

    gpus: Sequence[tuple[str, str]] = ()
    gpu: str = ""
    hours: str = "2h"
    price: str = PRICE_LATER
    more: bool = False
    preset: str = ""


def provision(channel: str, clouds: Iterable[str], policy: Policy, form: ProvisionForm | None = None) -> View:
    """Build the form for `/gpu provision` without words. The block ids are the words of the grammar."""
    form = form or ProvisionForm()
    names = [_option(*one) for one in form.gpus or [(name, name) for name in GPUS]]
    times = [_option(short_hours(one), _time_label(one, policy)) for one in _times(policy)]
    if form.preset:
        names, times = [_option(ANY, AS_PRESET), *names], [_option(ANY, AS_PRESET), *times]
    elif form.more:
        names, times = [_option(ANY, "Any GPU that fits the run"), *names], [_option(ANY, RUN_LONG), *times]
    names = names[:_GPU_OPTIONS]
    gpu = _select(names, "Choose a GPU", initial=_chosen(names, form.gpu), action=_action("gpu", form))
    time = _select(times, "2 hours", initial=_chosen(times, form.hours), action=_action("hours", form))
    elements: list[Block] = [button("Compare offers", "plan:form", "plan")]
    if not form.more:
        elements.insert(0, button("More options", "form:more", "more"))
    blocks = [
        *([_presets(policy, form.preset)] if policy.presets else []),
        _input("gpu", "GPU", gpu),
        _input("hours", "Time", time),
        _input("for", WHAT_FOR, _text("fine-tune of the summariser", longest=policy.max_reason_chars), optional=True),
        *(_more_fields(clouds, policy, form) if form.more else []),
        {**context(form.price), "block_id": "about"},
        {**actions(*elements), "block_id": "plan"},
    ]
    return _modal(PROVISION, "Request GPUs", blocks, "Request", channel)


def _action(field: str, form: ProvisionForm) -> str:
    """Name the action of a field that a preset fills: Slack keeps what was chosen while the name is the same."""
    return f"{FORM}{field}:{form.preset}" if form.preset else f"{FORM}{field}"


def _presets(policy: Policy, chosen: str) -> Block:
    """Build the field with the policy's presets, each with its words."""
    named = [_option(name, f"{name}: {words}") for name, words in listed_presets(policy.presets)]
    options = [_option(NO_PRESET, "No preset"), *named][:_GPU_OPTIONS]
    picked = _select(options, "No preset", initial=_chosen(options, chosen or NO_PRESET), action=f"{FORM}preset")
    return _input("preset", "Preset", picked, optional=True, hint="A job of your team. Other fields replace its own.")


def _more_fields(clouds: Iterable[str], policy: Policy, form: ProvisionForm) -> list[Block]:
    """Build what *More options* adds: the machine, the limits, the work. Each may stay empty."""
    spot = [_option("no", "On-demand only"), _option("any", "Spot or on-demand"), _option("yes", "Spot only")]
    counts = [_option(str(one)) for one in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32) if one <= policy.max_gpus]
    known = [_option(cloud) for cloud in clouds][:_GPU_OPTIONS]
    blocks = [
        section("*Machine*"),
        _input("typed", "Alternative GPUs", _text("A100-80GB, H100"), optional=True, hint="Such as A100-80GB, H100."),
        _input("count", "Number of GPUs", _select(counts, "1", action=f"{FORM}count"), optional=True),
        _input("disk", "Disk", _text("100"), optional=True, hint="In GB, such as 100."),
    ]
    if known:
        picked = {"type": "multi_static_select", "action_id": "in", "options": known}
        blocks.append(_input("clouds", "Clouds", picked, optional=True, hint="Empty: all of them."))
    # Without a choice, a preset's own market counts.
    initial, empty = (None, AS_PRESET) if form.preset else (spot[0], "On-demand only")
    market = _select(spot, empty, initial=initial, action=_action("spot", form))
    limits = _text("verified=yes region=EU cuda=12.4")
    run = _text("model=7B tokens=2B seq=2048")
    software = _select([_option(name) for name in STACKS], AS_PRESET if form.preset else "None")
    return [
        *blocks,
        _input("spot", "Market", market, optional=bool(form.preset)),
        section("*Limits*"),
        _input("max", "Total cost", _text("$50"), optional=True, hint="The most for everything, such as $50."),
        _input("price", "Hourly price", _text("$2.50"), optional=True, hint="For all GPUs together, such as $2.50."),
        _input("limits", "Other limits", limits, optional=True, hint=f"Words: {', '.join(NARROWING)}."),
        section("*Work*"),
        _input("work", "Training run", run, optional=True, hint=f"Such as model=7B tokens=2B. Time: {RUN_LONG}."),
        _input("install", "Software", software, optional=True, hint="Installed before your command starts."),
        _input("secrets", "Secrets", _text("HF_TOKEN"), optional=True, hint="Names of your stored secrets, no values."),
    ]


def _times(policy: Policy) -> list[Decimal]:
    """Return the times that can be chosen, up to the longest that the policy takes."""
    allowed = [one for one in _TIMES if hours_cap.check(one, Decimal(0), policy).outcome is not DurationOutcome.REFUSED]
    return sorted({*allowed, policy.max_hours_ever})


def _time_label(time_h: Decimal, policy: Policy) -> str:
    beyond = f" (above {hours(policy.max_hours)}: needs an override)" if hours_cap.is_above(policy, time_h) else ""
    return f"{hours(time_h)}{beyond}"


def _chosen(options: Sequence[Block], value: str) -> Block | None:
    return next((one for one in options if one["value"] == value), None)


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
        _input("hours", "Extra time", _text("1h, 90m"), hint="Such as 1h or 90m."),
        _input("for", "Purpose", why, optional=True, hint=beyond),
        context("Time that is already approved is added at once. More time needs an approval."),
    ]
    return _modal(EXTEND, RequestKind.EXTEND.label, blocks, "Request", meta)


@dataclass(frozen=True, slots=True)
class ConfirmedSpend:
    """What an approver confirms. Amounts are dollars for what is decided on, `time_h` hours.

    `in_all_usd` is what the whole run is expected to cost with it, earlier approvals included: the amount to type.
    `limit_usd` is what an approver set for all attempts together, and `spent_usd` what earlier ones cost.
    """

    offer_id: str
    expected_usd: Decimal
    worst_usd: Decimal
    price_usd_h: Decimal
    time_h: Decimal
    in_all_usd: Decimal
    limit_usd: Decimal | None = None
    limit_by: str = ""
    spent_usd: Decimal = Decimal(0)


def amount(token: str, spend: ConfirmedSpend, problem: str = "") -> View:
    """Ask the approver to type the expected total; `problem` says what was wrong before."""
    facts = [
        f"*Expected total* {dollars(spend.expected_usd)}",
        f"*Never more than* {dollars(spend.worst_usd)}",
        f"*Time* {hours(spend.time_h)} {at_rate(spend.price_usd_h)}",
        f"*Offer* {code(spend.offer_id)}",
    ]
    if spend.in_all_usd > spend.expected_usd:
        facts.insert(1, f"*Expected in all* {dollars(spend.in_all_usd)}, with what was approved before")
    hint = f"Empty: never more than {usd(spend.worst_usd)}."
    if spend.spent_usd > 0:
        facts.append(f"*Earlier attempts* {dollars(spend.spent_usd)}")
        hint = f"For all attempts together. Empty: never more than {usd(spend.worst_usd)} for this one."
    if spend.limit_usd is not None:
        facts.append(f"*Limit for all attempts* {dollars(spend.limit_usd)}, set by {person(spend.limit_by)}")
        hint = f"For all attempts together. Empty: {usd(spend.limit_usd)} stays the limit; another amount replaces it."
    blocks: list[Block] = [section(f":warning: {safe(problem, 500)}")] if problem else []
    blocks += [
        section("\n".join(facts)),
        _input("amount", f"Type {usd(spend.in_all_usd)} to confirm", _text("123.45")),
        _input("cap", "Limit for the total", _text(usd(spend.worst_usd)), optional=True, hint=hint),
        context("The approval is recorded under your name."),
    ]
    return _modal(AMOUNT, "Confirm the amount", blocks, "Approve", token)


def offers(meta: str, choices: Sequence[OfferChoice], picked: str = "", to_type: str = "") -> View:
    """Choose an offer of a quote; `to_type` is the amount to confirm for the `picked` token, where it must be."""
    shown = [_offer_option(one) for one in choices[:10]]
    radio: Block = {"type": "radio_buttons", "action_id": "offer:pick", "options": shown}
    initial = [one for one in shown if one["value"] == picked]
    radio |= {"initial_option": initial[0]} if initial else {}
    blocks = [_input("offer", "Offer", radio)]
    if to_type:
        blocks.append(_input("amount", f"Type {to_type} to confirm", _text("123.45")))
    blocks.append(context("The approval is recorded under your name."))
    return _modal(OFFERS, "Other offers", blocks, "Approve", meta)


def offers_to_read(choices: Sequence[OfferChoice], who: str) -> View:
    """Show the offers of a quote to somebody who can't approve one of them; `who` says, as mrkdwn, who can."""
    shown = [section(f"*{safe(one.text)}*\n{safe(one.description)}") for one in choices[:10]]
    return _modal(OFFERS, "Other offers", [*shown, context(who)])


def key(request_id: str) -> View:
    """Ask for the public SSH key of the person at the dialog; `request_id` names the card with its button."""
    typed = _text("ssh-ed25519 AAAA… you@laptop", multiline=True, longest=INPUT_MAX)
    hint = "The content of ~/.ssh/id_ed25519.pub. Never paste a private key."
    return _modal(KEY, "Your SSH key", [_input("key", "Public key", typed, hint=hint)], "Add key", request_id)


def secret(name: str) -> View:
    """Ask for the value of a secret; the command named it."""
    typed = _text("The value", multiline=True, longest=INPUT_MAX)
    hint = "It is stored encrypted, and shown to nobody. A longer one: gpu-shopper secret set, at a terminal."
    return _modal(SECRET, "Store a secret", [_input("value", name, typed, hint=hint)], "Store", name)


def change(
    meta: str,
    choices: Sequence[OfferChoice],
    most: tuple[Decimal, Decimal],
    problem: str = "",
    typed: tuple[str, str] = ("", ""),
) -> View:
    """Approve with changes: another shown offer, a shorter time, a lower limit; each may stay as it is.

    `most` are the `(hours, dollars)` that an approval without changes covers.
    `problem` says what was wrong with the `(time, limit)` that were typed before; the form shows them again.
    """
    shown = [_offer_option(one) for one in choices][:_GPU_OPTIONS]
    first = next((one for one in shown if one["value"] == meta.partition("/")[0]), shown[0])
    time, limit = _text(short_hours(most[0]), typed[0]), _text(usd(most[1]), typed[1])
    blocks: list[Block] = [section(f":warning: {safe(problem, 500)}")] if problem else []
    blocks += [
        _input("offer", "Offer", _select(shown, "Offer", initial=first)),
        _input("hours", "For how long", time, optional=True, hint="Shorter, never longer."),
        _input(
            "cap", "Limit for the total", limit, optional=True, hint="Lower than the “never more than” of the offer."
        ),
        context("The requester sees what you changed. The approval is recorded under your name."),
    ]
    return _modal(CHANGE, "Approve with changes", blocks, "Approve", meta)


def _modal(callback: str, title: str, blocks: list[Block], submit: str = "", metadata: str = "") -> View:
    """Build a dialog; without `submit` it only shows something."""
    form = {"submit": plain(submit, 24), "private_metadata": metadata} if submit else {}
    head = {
        "type": "modal",
        "callback_id": callback,
        "title": plain(title, 24),
        "close": plain("Cancel" if submit else "Close", 24),
    }
    return {**head, **form, "blocks": blocks}


def _input(block_id: str, label: str, element: Block, *, optional: bool = False, hint: str = "") -> Block:
    """Build one field. A field with an action of its own reports each choice at once."""
    block: Block = {
        "type": "input",
        "block_id": block_id,
        "label": plain(label, 200),
        "element": element,
        "optional": optional,
        **({"dispatch_action": True} if element["action_id"] != "in" else {}),
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


def _select(options: list[Block], placeholder: str, *, initial: Block | None = None, action: str = "in") -> Block:
    element: Block = {
        "type": "static_select",
        "action_id": action,
        "placeholder": plain(placeholder, 150),
        "options": options,
    }
    return {**element, "initial_option": initial} if initial else element


def _offer_option(choice: OfferChoice) -> Block:
    return {**_option(choice.token, choice.text), "description": plain(choice.description, 75)}


def _option(value: str, label: str = "") -> Block:
    return {"text": plain(label or value, 75), "value": value[:150]}
