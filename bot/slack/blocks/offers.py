"""Show offers: the name on a button, the place, the reasons of a rank, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.jobs.job_text import machine
from bot.rules.values.phrases import ANY_REGION, place_name
from bot.services.market.codec import hold_line, offer_from_json, parts_line
from bot.slack.blocks.elements import Block, context, safe
from ledger.models import Option
from providers.cloud_names import cloud_title
from providers.contract import Offer

#: Places that say nothing: the cloud chooses one, or does not say where.
UNSAID = frozenset({ANY_REGION, "unknown"})


@dataclass(frozen=True, slots=True)
class OfferLine:
    """One ranked offer with its estimate in dollars, from whatever source."""

    rank: int
    offer: Offer
    price_usd_h: Decimal
    best_usd: Decimal
    expected_usd: Decimal
    worst_usd: Decimal
    marks: tuple[str, ...]
    why: str
    #: The part of the worst case for a checkpoint hold at its end; empty without one.
    hold: str = ""
    #: The parts of the expected total; empty where there is only one.
    parts: str = ""

    @property
    def name(self) -> str:
        """Name the offer, unescaped: `4× A100-80GB at vast`."""
        return f"{self.gpus} at {self.offer.cloud}"

    @property
    def gpus(self) -> str:
        """Name the GPUs, unescaped: `4× A100-80GB`."""
        return machine(self.offer.nodes, self.offer.gpu_count, self.offer.gpu)


def line(option: Option) -> OfferLine:
    """Convert a stored option."""
    return OfferLine(
        option.rank,
        offer_from_json(option.offer),
        option.price_usd_h,
        option.best_usd,
        option.expected_usd,
        option.worst_usd,
        tuple(option.marks),
        option.why,
        hold_line(option),
        parts_line(option),
    )


def place(offer: Offer, *, kind: bool = True) -> str:
    """Say where an offer is and, with `kind`, whether it may be interrupted, unescaped: `RunPod · US · on-demand`."""
    what = ("spot, may be interrupted" if offer.spot else "on-demand") if kind else ""
    named = place_name(offer.region, offer.country)
    return " · ".join(filter(None, (cloud_title(offer.cloud), "" if named in UNSAID else named, what)))


def reasons(lines: Iterable[OfferLine]) -> Block | None:
    """Explain the rank of the marked options."""
    shown = [f"*#{one.rank}* {safe(', '.join(one.marks))}: {safe(one.why)}" for one in lines if one.marks and one.why]
    return context(*shown[:4]) if shown else None


def left_out(excluded: Iterable[str], absent: Iterable[str]) -> Block | None:
    """List what is not in the table: skipped offers, and clouds that did not answer. Sentences are foreign text."""
    shown = [f":warning: {safe(sentence)}" for sentence in absent]
    shown += filter(None, map(safe, excluded))
    return context(" ".join(shown[:12])) if shown else None
