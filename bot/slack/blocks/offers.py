"""Offers for people: the ranked table, the name on a button, and the price block, which nobody's words get into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.values.phrases import rate, usd
from bot.services.market.codec import hold_line, offer_from_json, parts_line
from bot.slack.blocks.elements import Block, code, context, dollars, money_range, percent, safe, table
from ledger.models import Option
from providers.contract import Offer

HEAD = ("#", "cloud", "GPU", "region", "kind", "$/h", "expected total", "range", "reliability", "marks")
RIGHT = (0, 5, 6, 7, 8)
#: Prose: the marks shall be seen without scrolling to the side.
WRAPPED = (3, 9)


@dataclass(frozen=True, slots=True)
class OfferLine:
    """One ranked offer with its estimate in dollars, wherever it was read from."""

    rank: int
    offer: Offer
    price_usd_h: Decimal
    best_usd: Decimal
    expected_usd: Decimal
    worst_usd: Decimal
    marks: tuple[str, ...]
    why: str
    #: What of the worst case is for its end; empty where nothing is.
    hold: str = ""
    #: What the expected total is made of; empty where it is one part alone.
    parts: str = ""

    @property
    def name(self) -> str:
        """`4× A100-80GB at vast`, unescaped."""
        return f"{self.offer.gpu_count}× {self.offer.gpu} at {self.offer.cloud}"


def line(option: Option) -> OfferLine:
    """A stored option."""
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


def offers_table(lines: Iterable[OfferLine]) -> Block:
    """The ranked table."""
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
        money_range(one.best_usd, one.worst_usd),
        trust,
        ", ".join(one.marks) or "–",
    )


def reasons(lines: Iterable[OfferLine]) -> Block | None:
    """Why the marked options are where they are."""
    told = [f"*#{one.rank}* {safe(', '.join(one.marks))}: {safe(one.why)}" for one in lines if one.marks and one.why]
    return context(*told[:4]) if told else None


def left_out(excluded: Iterable[str], absent: Iterable[str]) -> Block | None:
    """What is not in the table: offers left out, and clouds that did not answer. Sentences are foreign text."""
    told = [f":warning: {safe(sentence)}" for sentence in absent]
    told += filter(None, map(safe, excluded))
    return context(" ".join(told[:12])) if told else None


def price_block(lines: Sequence[OfferLine], version: int) -> Block:
    """The last block of a request: fixed layout, numbers from the ledger and nothing that anybody typed."""
    told = [f"*Price* (quote {version}, from the ledger)"]
    for one in lines:
        made_of = f" = {safe(one.parts, 200)}" if one.parts else ""
        totals = f"expected {dollars(one.expected_usd)}{made_of} · at most {dollars(one.worst_usd)}"
        told.append(f"#{one.rank}  {rate(one.price_usd_h)} · {totals}")
        told += [f"      {one.hold}"] if one.hold else []
    return context("\n".join(told))


def spoken(one: OfferLine) -> str:
    """One offer for a screen reader, as mrkdwn-safe text."""
    kind = "spot" if one.offer.spot else "on-demand"
    marks = f", {', '.join(one.marks)}" if one.marks else ""
    sentence = (
        f"#{one.rank} {one.name}, {one.offer.region or 'region unknown'}, {kind}, {rate(one.price_usd_h)}, expected "
        f"{usd(one.expected_usd)} ({money_range(one.best_usd, one.worst_usd)}){marks}"
        f"{', ' + one.hold if one.hold else ''}"
    )
    return safe(sentence)


def offer_code(offer: Offer) -> str:
    """The id that people type, in a fixed-width font."""
    return code(offer.id)
