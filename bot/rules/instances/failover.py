"""Choose the next option after a definite no: one that the approval covers, and nothing that just failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.market.ranking import RankedOption
from bot.rules.policy.policy import Policy
from bot.rules.pricing.spend_limits import bad_price
from bot.rules.values.phrases import at_rate
from providers.contract import Offer
from providers.errors import (
    AuthFailed,
    InsufficientFunds,
    NotSent,
    OutcomeUnknown,
    QuotaExceeded,
    RateLimited,
    Unsupported,
)

#: Error codes that say something about the account or the cloud, so that its other offers would fail in the same way.
CLOUD_WIDE = frozenset(
    kind.code for kind in (AuthFailed, QuotaExceeded, InsufficientFunds, RateLimited, NotSent, Unsupported)
)
#: A launch waits this long at most for a cloud's rate limit, before its create and after it; then it fails over.
PATIENCE = timedelta(seconds=60)
#: The pause in seconds after a rate limit, where the cloud names no pause.
PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Describe one create that failed under this grant's approval: the offer and the error's code."""

    offer: Offer
    code: str
    definite_no: bool = True


@dataclass(frozen=True, slots=True)
class Placement:
    """Name the option to try next, or None with the reason why there is none."""

    option: RankedOption | None
    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class LimitWait:
    """The wait of a launch for its cloud's rate limit: since when, and until when the newest refusal says to wait."""

    since: datetime
    until: datetime


def wait_for_limit(
    before: LimitWait | None, now: datetime, retry_after_s: float, approved_until: datetime
) -> LimitWait | None:
    """Return the wait that a refusal asks for; None where it is longer than a launch waits, or than its approval.

    A refusal long after the one before begins a new wait, because something else delayed the launch meanwhile.
    """
    since = before.since if before is not None and now - before.until <= PATIENCE else now
    until = now + timedelta(seconds=max(retry_after_s, 1.0))
    return LimitWait(since, until) if until - since <= PATIENCE and until < approved_until else None


def next_option(
    shown: Sequence[RankedOption],
    chosen_offer_id: str,
    failures: Sequence[Failure],
    price_cap_usd_h: Decimal,
    total_cap_usd: Decimal,
    policy: Policy,
    candidates: Sequence[str] = (),
) -> Placement:
    """Choose the next of the options that the approved message showed.

    The chosen one comes first, then those ranked below it, then those above; where clouds were named, those of the
    first cloud named come before those of the second, and so on. Left out: failed offers, every offer on
    the machine or host that failed, every offer of a cloud whose failure was about the account, a price above the cap,
    an expected total above the total cap, and spot where on-demand was approved or the reverse. Nothing is tried after
    a failure that is not a definite no. The sentence mentions other offers only where others were shown.
    """
    others = len(shown) > 1
    if any(not failure.definite_no or failure.code == OutcomeUnknown.code for failure in failures):
        sentence = "It is unknown whether the last launch worked" + (", so no other offer is tried." if others else ".")
        return Placement(None, OutcomeUnknown.code, sentence)
    if failures and not policy.failover:
        sentence = "The policy doesn't allow a launch of another offer." if others else ""
        return Placement(None, "failover_off", sentence)
    chosen = next((place for place, option in enumerate(shown) if option.offer.id == chosen_offer_id), None)
    if chosen is None:
        return Placement(None, "not_shown", "The approved offer is not one of the options that were shown.")
    first = shown[chosen]
    # An approver may cap a run below its own expected total; that must not rule out what they approved.
    most_usd = max(total_cap_usd, first.estimate.expected_usd)
    rest = sorted((*shown[chosen + 1 :], *shown[:chosen]), key=lambda option: _place(option.offer.cloud, candidates))
    for option in (first, *rest):
        same_kind = option.offer.spot is first.offer.spot
        if same_kind and _covered(option, price_cap_usd_h, most_usd) and not _failed(option, failures):
            sentence = f"{option.offer.id} {at_rate(option.offer.price_usd_h or Decimal(0))} comes next."
            return Placement(option, "ok", sentence)
    sentence = "No other option that was shown is within the approved amount." if others else ""
    return Placement(None, "none_left", sentence)


def _place(cloud: str, candidates: Sequence[str]) -> int:
    return candidates.index(cloud) if cloud in candidates else len(candidates)


def _covered(option: RankedOption, price_cap_usd_h: Decimal, most_usd: Decimal) -> bool:
    price = option.offer.price_usd_h
    # A free cloud's zero was accepted when the option was ranked.
    if price is None or bad_price(price, free=True):
        return False
    return price <= price_cap_usd_h and option.estimate.expected_usd <= most_usd


def _failed(option: RankedOption, failures: Sequence[Failure]) -> bool:
    return any(_same_fate(option.offer, failure) for failure in failures)


def _same_fate(offer: Offer, failure: Failure) -> bool:
    """Whether the failure means that `offer` would fail too."""
    failed = failure.offer
    if offer.cloud != failed.cloud:
        return False
    same_machine = offer.machine_id is not None and offer.machine_id == failed.machine_id
    same_host = offer.host_id is not None and offer.host_id == failed.host_id
    return offer.key == failed.key or same_machine or same_host or failure.code in CLOUD_WIDE
