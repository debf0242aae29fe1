"""Judge whether the account at a cloud can pay for an offer: its credit, and its own ceiling of dollars per hour."""

from __future__ import annotations

from bot.rules.values.phrases import rate, usd
from providers.contract import Balance, Offer


def cannot_pay(offer: Offer, balance: Balance | None) -> str | None:
    """Say why the account would be refused, or None.

    Where the cloud reports no balance, nothing speaks against it. Less than one hour's price is too little: some clouds
    refuse the create below it, and all end what runs at zero.
    """
    price = offer.price_usd_h
    if balance is None or price is None or not price.is_finite():
        return None
    if balance.credit_usd < price:
        return (
            f"The account at {offer.cloud} has {usd(balance.credit_usd)} left, less than one hour of this offer costs"
        )
    limit = balance.spend_limit_usd_h
    if limit is not None and balance.spend_usd_h + price > limit:
        spent = rate(balance.spend_usd_h)
        return f"The account at {offer.cloud} spends {spent} already, and its own limit is {rate(limit)}"
    return None
