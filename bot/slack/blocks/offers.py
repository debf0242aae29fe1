"""Show offers: the ranked table, the name on a button, and the price block, which contains no foreign text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.values.phrases import rate, usd
from bot.services.market.codec import hold_line, offer_from_json, parts_line
from bot.slack.blocks import job as job_words
from bot.slack.blocks.elements import Block, context, percent, safe, table
from ledger.models import Option
from providers.contract import Offer

HEAD = ("#", "cloud", "GPU", "region", "kind", "$/h", "expected total", "range", "reliability", "marks")
RIGHT = (0, 5, 6, 7, 8)
#: Columns of prose, which wrap: readers should see the marks without scrolling to the side.
WRAPPED = (3, 9)


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
        return f"{self.offer.gpu_count}× {self.offer.gpu}"


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
    region = "" if offer.region in ("any", "unknown") else offer.region
    return " · ".join(filter(None, (job_words.cloud(offer.cloud), region, what)))


def offers_table(lines: Iterable[OfferLine]) -> Block:
    """Build the ranked table."""
    return table([HEAD, *(_row(one) for one in lines)], RIGHT, wrapped=WRAPPED)


def _row(one: OfferLine) -> Sequence[str]:
    offer = one.offer
    trust = "not reported" if offer.reliability is None else percent(offer.reliability)
    return (
        str(one.rank),
        offer.cloud,
        f"{offer.gpu_count}× {offer.gpu}",
        offer.region or "unknown",
        "spot" if offer.spot else "on-demand",
        rate(one.price_usd_h),
        usd(one.expected_usd),
        _range(one),
        trust,
        ", ".join(one.marks) or "–",
    )


def reasons(lines: Iterable[OfferLine]) -> Block | None:
    """Explain the rank of the marked options."""
    shown = [f"*#{one.rank}* {safe(', '.join(one.marks))}: {safe(one.why)}" for one in lines if one.marks and one.why]
    return context(*shown[:4]) if shown else None


def left_out(excluded: Iterable[str], absent: Iterable[str]) -> Block | None:
    """List what is not in the table: skipped offers, and clouds that did not answer. Sentences are foreign text."""
    shown = [f":warning: {safe(sentence)}" for sentence in absent]
    shown += filter(None, map(safe, excluded))
    return context(" ".join(shown[:12])) if shown else None


def spoken(one: OfferLine) -> str:
    """Describe one offer for a screen reader, as mrkdwn-safe text."""
    kind = "spot" if one.offer.spot else "on-demand"
    marks = f", {', '.join(one.marks)}" if one.marks else ""
    sentence = (
        f"#{one.rank} {one.name}, {one.offer.region or 'region unknown'}, {kind}, {rate(one.price_usd_h)}, expected "
        f"{usd(one.expected_usd)} ({_range(one)}){marks}"
        f"{', ' + one.hold if one.hold else ''}"
    )
    return safe(sentence)


def _range(one: OfferLine) -> str:
    return f"{usd(one.best_usd)}–{usd(one.worst_usd)}"
