"""Compute whether a run would finish cheaper on another machine, with everything that the move itself costs.

The run is at `now` and its work lasts until `ends_at`, which is `left` hours away. Both machines compute equally fast:
only offers with the GPU and the number of GPUs of the run's own machine are compared. All times are in hours.

- ready = boot + start-up: until the new machine could continue. The old one works meanwhile, and is paid.
- rest = handover + 2 x copy: the last save is written and read back, and nobody works. Both machines are paid. A copy
  takes the size of the save by the bandwidth of the new machine; the handover is the time of the check-ins between.
- proof: until the run's step has passed that of the save, and the old machine is gone. Both machines are paid.
- again = now - saved: work since the last verified checkpoint. The move saves first, so this is repeated only if that
  save fails. It is counted in full, so that the suggestion is true then, too.
- stay = left x price here.
- move = (ready + rest + proof) x price here
  + billed(boot, where it is billed, + start-up + rest + left - ready + again) x price there
  + size of the save x price to receive it
  + what the ranking expects of losses of the new machine.
- saves = stay - move. `cost` of the move is what it takes from left x (price here - price there).

A run that ends before the move could be over saves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Final

from bot.rules.relocation.asks import FAST_S
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import about_hours, rate, rates, usd
from providers.capabilities import BillingRule
from providers.completeness import Completeness

_HOUR: Final = timedelta(hours=1)
_ZERO: Final = Decimal(0)
#: Four check-ins: two agents read what they are asked, and the store is looked at between.
HANDOVER_H: Final = Decimal(4 * FAST_S) / 3600
#: The first step, its report, and the end of the old machine.
PROOF_H: Final = Decimal(1) / 12


@dataclass(frozen=True, slots=True)
class MovableRun:
    """Describe a run where it is: its price, when its work ends, and its last verified checkpoint."""

    price_usd_h: Decimal
    ends_at: datetime
    saved_at: datetime
    saved_gb: Decimal


@dataclass(frozen=True, slots=True)
class NewPlace:
    """Describe a machine that a run could move to. `copy_gb_h` is how much of a save it reads in an hour."""

    price_usd_h: Decimal
    boot_h: Decimal
    is_boot_billed: bool
    startup_h: Decimal
    copy_gb_h: Decimal
    billing: BillingRule
    ingress_usd_gb: Decimal = _ZERO
    losses_usd: Decimal = _ZERO


@dataclass(frozen=True, slots=True)
class MoveSaving:
    """Hold what a move saves: the run's cost from now on here and there, the move's part of it, and the hours left."""

    stay_usd: Decimal
    move_usd: Decimal
    cost_usd: Decimal
    left_h: Decimal

    @property
    def saves_usd(self) -> Decimal:
        """What the owner pays less; below zero where the move costs more than it saves."""
        return self.stay_usd - self.move_usd

    def is_worthwhile(self, least_usd: Decimal, least_percent: Decimal) -> bool:
        """Whether it saves at least this amount, and this share of what the run still costs."""
        return self.saves_usd >= max(least_usd, self.stay_usd * least_percent / 100) and self.saves_usd > 0


def saving(run: MovableRun, place: NewPlace, now: datetime) -> MoveSaving | None:
    """Compare both; None for a run that would be over before the move is."""
    left_h = Decimal(str((run.ends_at - now) / _HOUR))
    ready_h = place.boot_h + place.startup_h
    rest_h = HANDOVER_H + 2 * run.saved_gb / place.copy_gb_h
    both_h = ready_h + rest_h + PROOF_H
    if left_h <= both_h:
        return None
    again_h = max(Decimal(str((now - run.saved_at) / _HOUR)), _ZERO)
    boot_h = place.boot_h if place.is_boot_billed else _ZERO
    there_h = billed_h(boot_h + place.startup_h + rest_h + left_h - ready_h + again_h, place.billing)
    stay_usd = left_h * run.price_usd_h
    move_usd = (
        both_h * run.price_usd_h + there_h * place.price_usd_h + run.saved_gb * place.ingress_usd_gb + place.losses_usd
    )
    return MoveSaving(stay_usd, move_usd, move_usd - left_h * place.price_usd_h, left_h)


def price_cap(offers: Sequence[tuple[Decimal, MoveSaving | None]]) -> Decimal | None:
    """Return the highest price at or below which every offer saves something; None where the cheapest one doesn't.

    `offers` has the price of each and what a move there saves; None for one that the run would be over before.
    """
    cap = None
    for price_usd_h, comparison in sorted(offers, key=lambda offer: offer[0]):
        if comparison is None or comparison.saves_usd <= 0:
            break
        cap = price_usd_h
    return cap


def nothing_cheaper(
    session: str, here_usd_h: Decimal, offers: Sequence[tuple[Decimal, MoveSaving | None]], read: Completeness
) -> str:
    """Say that nothing is cheaper, and why; `session` is its short id. A part of the market is called a part."""
    if read.proof is None:
        return f"No offer that was read is cheaper for session {session}. {read.why} Try again."
    answer = f"Nothing is cheaper for session {session}."
    if not offers:
        return f"{answer} No offer with the same GPUs costs less than {rate(here_usd_h)}."
    compared = [comparison for _, comparison in offers if comparison is not None]
    if not compared:
        return f"{answer} The run would end before it could move."
    best = max(compared, key=lambda comparison: comparison.saves_usd)
    return (
        f"{answer} The run has {about_hours(best.left_h)} left. With the move itself, the best offer would "
        f"cost about {usd(-best.saves_usd)} more."
    )


def billed_h(hours: Decimal, rule: BillingRule) -> Decimal:
    """Return the hours that a cloud bills for a time: rounded up to its unit, and at least its minimum."""
    seconds = max(hours * 3600, Decimal(rule.minimum_s))
    units = (seconds / max(rule.quantum_s, 1)).to_integral_value(ROUND_CEILING)
    return units * max(rule.quantum_s, 1) / 3600


def suggestion(session: str, offer: str, here_usd_h: Decimal, there_usd_h: Decimal, found: MoveSaving) -> str:
    """Write the message for the owner; `session` is its short id, `offer` says where the other machine is."""
    here, there = rates(here_usd_h, there_usd_h)
    left, saved, cost = about_hours(found.left_h), usd(found.saves_usd), usd(found.cost_usd)
    return (
        f"Session {session} would finish about {saved} cheaper on {offer}: {there} instead of {here} for the {left} "
        f"that are left. This includes about {cost} for the move itself. To ask for the move: "
        f"{cli_command(f'migrate {session} to cheaper')}."
    )
