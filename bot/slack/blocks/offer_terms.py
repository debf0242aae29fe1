"""Say what one offer of a request costs, and why it is recommended, on its card and in the dialogs that compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.market.ranking import in_short
from bot.rules.pricing.spend_limits import SetLimit, limit_in_force, total_cap
from bot.rules.sessions.extension import later
from bot.rules.values.phrases import brief, rate, reliability, usd
from bot.services.grants import amendments
from bot.services.market.codec import completeness_of_quote
from bot.slack.blocks.approvals import APPROVE, votes_of
from bot.slack.blocks.elements import dollars, safe, when
from bot.slack.blocks.offers import line, place
from ledger.kernel.request_kind import RENTS
from ledger.kernel.states import RequestState, SessionState
from ledger.models import Option
from ledger.queries.views import RequestView, SessionView

#: The longest line of a radio button or of a menu's entry in Slack.
LINE_MAX: Final = 75
#: The states of a session that has an end which can move.
_GOES_ON: Final = frozenset({SessionState.PROVISIONING, SessionState.RUNNING, SessionState.STOPPED})


@dataclass(frozen=True, slots=True)
class OfferChoice:
    """One offer of a dialog: its button's token, a line of at most 75 characters, and a second line below it.

    The token is empty where the offer can't be approved.
    """

    token: str
    text: str
    description: str


def shown_option(view: RequestView) -> Option | None:
    """Return the one offer that a card shows: the first approver's choice, else the recommended one."""
    picked = [one for one in view.options if one.id == view.request.chosen_option_id]
    return next(iter([*picked, *view.options]), None)


def card_amounts(view: RequestView, option: Option, spent_usd: Decimal | None) -> tuple[Decimal, Decimal]:
    """Return the dollars that an approval of this option now expects, and the most that it covers."""
    request = view.request
    time_h = amendments.most_hours(request, view.approvals)
    expected_usd, worst_usd = amendments.amounts(request, option, time_h)
    held = limit_held(view)
    most_usd = total_cap(
        worst_usd,
        asked_usd=job_of(request.job).budget_cap_usd,
        approver_usd=held.usd if held else None,
        spent_usd=spent_usd or Decimal(0),
    )
    covered = [vote.total_cap_usd for vote in votes_of(view) if vote.total_cap_usd is not None]
    return expected_usd, min([most_usd, *covered])


def limit_held(view: RequestView) -> SetLimit | None:
    """Return the limit for all attempts together that an approver set."""
    limits = (
        SetLimit(vote.quote_version, vote.limit_usd, vote.approver)
        for vote in view.approvals
        if vote.limit_usd is not None
    )
    return limit_in_force(limits)


def why_shown(view: RequestView) -> str:
    """Say in one to four words why the offer of a card is recommended; empty where somebody chose it."""
    request, shown = view.request, shown_option(view)
    if shown is None or request.chosen_option_id or job_of(request.job).offer_id or request.kind not in RENTS:
        return ""
    if len(view.options) == 1:
        whole = view.quote is not None and completeness_of_quote(view.quote).is_complete
        return "the only offer" if whole else ""
    cheaper = [one for one in view.options if one.expected_usd < shown.expected_usd]
    late = bool(cheaper) and all(_late_h(one) > _late_h(shown) for one in cheaper)
    return in_short(shown.marks, "in time" if late else "reliable" if cheaper else "")


def _late_h(option: Option) -> Decimal:
    return Decimal(str((option.estimate or {}).get("late_hours", 0)))


def most_reliable(view: RequestView, shown: Option) -> str:
    """Name the most reliable offer in one line, when it is another one than the card shows."""
    if view.request.chosen_option_id:
        return ""
    for option in view.options:
        if option.rank != shown.rank and any("stability" in mark for mark in option.marks):
            more_usd = option.expected_usd - shown.expected_usd
            differs = f"{dollars(abs(more_usd))} {'more' if more_usd >= 0 else 'less'}"
            return f"Most reliable: {safe(place(line(option).offer, kind=False))}, {differs}"
    return ""


def price_parts(view: RequestView, option: Option) -> tuple[str, str]:
    """Say what is expected, and what that holds besides the hours, unescaped: `about $0.77`, ` with $0.20 transfer`."""
    time_h = amendments.most_hours(view.request, view.approvals)
    extra = amendments.besides_hours(view.request, option, time_h)
    expected_usd, _ = amendments.amounts(view.request, option, time_h)
    return f"about {usd(expected_usd)}", f" with {extra}" if extra else ""


def choices(view: RequestView, spent_usd: Decimal) -> list[OfferChoice]:
    """List the offers of the current quote, the one of the card first, each with what its approval would cover."""
    tokens = {one.option_id: one.token for one in view.tokens if one.action == APPROVE}
    chosen, shown = view.request.chosen_option_id, shown_option(view)
    first = [shown] if shown is not None else []
    differ = len({line(one).gpus for one in view.options}) > 1
    found = []
    for option in [*first, *(one for one in view.options if one is not shown and chosen is None)]:
        offer = line(option).offer
        _, most_usd = card_amounts(view, option, spent_usd)
        kind = " · spot" if offer.spot else ""
        which = f"{line(option).gpus} · " if differ else ""
        about, extra = price_parts(view, option)
        text = f"{which}{place(offer, kind=False)}{kind} · {rate(option.price_usd_h)} · {about}"
        text += extra if len(text) + len(extra) <= LINE_MAX else ""
        mark = ("recommended" if chosen is None else "chosen") if option is shown else in_short(option.marks)
        trust = "" if offer.reliability is None else f"{reliability(offer.reliability)} reliable"
        description = _fitting([mark, f"never more than {usd(most_usd)}", trust])
        found.append(OfferChoice(tokens.get(option.id, ""), text, description))
    return found


def _fitting(parts: Iterable[str]) -> str:
    """Join as many parts, the first ones, as one line holds."""
    said = ""
    for part in filter(None, parts):
        longer = f"{said} · {part}" if said else part
        if len(longer) > LINE_MAX:
            break
        said = longer
    return said


def how_it_ends(job: JobRequest, option: Option, time_h: Decimal | None, boot_s: int | None) -> str:
    """Say when it is ready, and that it ends by itself, after `time_h` hours where that is not said elsewhere."""
    if job.makes_volume:
        notices = str((option.estimate or {}).get("notices") or "")
        lead = "deleted at its end with all data on it · costs the same when no machine uses it"
        return f"{lead}\n{notices}".rstrip()
    ready = f"ready in about {brief(Decimal(boot_s) / 3600)} · " if boot_s else ""
    return f"{ready}ends by itself{f' after {brief(time_h)}' if time_h is not None else ''}"


def extended_to(view: RequestView, session: SessionView | None) -> list[str]:
    """Say when the session would end with a waiting extension, or ends with an approved one, and its new total.

    Empty once its end does not move any more.
    """
    option = shown_option(view)
    if session is None or option is None or session.session.state not in _GOES_ON or session.session.deadline is None:
        return []
    request, end = view.request, session.session.deadline
    if request.state is RequestState.APPROVED:
        total = f"{brief(Decimal(session.session.hours))}, never more than {dollars(session.cap_usd)} in all"
        return [f"The session now ends {when(end)}: {total}."]
    time_h = amendments.most_hours(request, view.approvals)
    total_h = job_of(request.job).already_hours + time_h
    _, most_usd = card_amounts(view, option, None)
    total = f"{brief(total_h)}, never more than {dollars(session.cap_usd + most_usd)}"
    return [f"New end: {when(later(end, time_h))}", f"Session in all: {total}"]
