"""Say what moving a run's data to one offer costs, and how long it takes."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.market.parts import Scenario, fetching_h
from bot.rules.sizing.run_time import RunTime
from bot.rules.values.phrases import about_hours, usd
from ledger.kernel import money
from providers.contract import Offer


def data_said(offer: Offer, run: RunTime, case: Scenario) -> str:
    """Write `Data: 200 GB from S3 us-east-1, $18.00 and 14 min.`; empty where their size or place was not said.

    The dollars are the store's charge and the offer's own for each GB. What a volume costs a month is not part of them,
    because it is paid whatever is rented.
    """
    if run.data is None or not run.data_gb:
        return ""
    lead = f"Data: {run.data_gb.normalize():,f} GB from {run.data.label}"
    month_usd = run.data.kept_usd_month(run.data_gb)
    kept = f" Keeping them there costs {usd(month_usd)} a month." if month_usd else ""
    if run.beside:
        return f"{lead}, read in place.{kept}"
    moving_usd = money.amount(run.source_usd + max(offer.ingress_usd_gb, Decimal(0)) * run.data_gb)
    moving_h = fetching_h(offer, case) * run.data_gb / run.fetched_gb
    return f"{lead}, {usd(moving_usd)} and {about_hours(moving_h)}.{kept}"
