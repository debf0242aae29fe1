"""Bid for spot offers: a margin above the lowest bid that a cloud accepts, and never above what was approved."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from bot.rules.pricing.spend_limits import bad_price
from ledger.kernel import money
from providers.contract import Offer

#: The lowest accepted bid moves within minutes, and it is all that a search tells. A bid of exactly that often loses:
#: the instance is made stopped, its disk is billed, and the next offer is tried.
MARGIN = Decimal("0.05")


def with_margin(offer: Offer) -> Offer:
    """Price a spot offer at the bid that is sent for it, so that what is shown, approved and paid are the same."""
    least, price = offer.min_bid_usd_h, offer.price_usd_h
    if not offer.spot or price is None or bad_price(least, free=False) or bad_price(price, free=False):
        return offer
    return _at(offer, (least or Decimal(0)) * (1 + MARGIN))


def inside(offer: Offer, price_cap_usd_h: Decimal) -> Offer:
    """Lower the margin of a spot offer to what the approval covers, down to the lowest accepted bid."""
    least, price, bid = offer.min_bid_usd_h, offer.price_usd_h, offer.gpu_usd_h
    if not offer.spot or least is None or price is None or bid is None or price <= price_cap_usd_h:
        return offer
    return _at(offer, max(money.cap(bid - (price - price_cap_usd_h)), least))


def _at(offer: Offer, bid_usd_h: Decimal) -> Offer:
    """Replace the bid, rounded to what an hour's rate may be, in the rate of the GPUs and in the whole rate."""
    bid, old = money.rate(bid_usd_h), offer.gpu_usd_h if offer.gpu_usd_h is not None else offer.min_bid_usd_h
    return replace(offer, gpu_usd_h=bid, price_usd_h=(offer.price_usd_h or Decimal(0)) - (old or Decimal(0)) + bid)
