"""Set the best spot offer beside the best on-demand one, where a job takes both."""

from __future__ import annotations

from bot.rules.market.outlook import percent
from bot.rules.market.parts import chance_in
from bot.rules.market.scoring import Cases, Scored
from bot.rules.sizing.interruptions import lost_within
from bot.rules.values.phrases import usd
from ledger.kernel import money


def spot_said(spot: Scored | None, on_demand: Scored | None, cases: Cases) -> str:
    """Say what spot saves, and the chance that the machine is lost during the run; empty where only one kind fits."""
    if spot is None or on_demand is None:
        return ""
    saved = money.cents_even(on_demand.expected_usd - spot.expected_usd)
    case = cases.of(spot.offer).scenario
    lost = lost_within(chance_in(spot.offer, case, cases.policy), case.window_h, case.work_h)
    said = percent(lost)
    risk = f"a {said} chance to lose the machine" if said[0].isdigit() else f"a chance {said} to lose the machine"
    if saved > 0:
        return f"Spot saves about {usd(saved)}, with {risk}."
    less = f"costs about {usd(-saved)} less" if saved < 0 else "costs as much"
    return f"Spot saves nothing now: on-demand {less}, and spot comes with {risk}."
