"""Build the table of the market for people."""

from __future__ import annotations

from bot.rules.values.phrases import hours, rate, usd
from bot.rules.values.text_table import TextReport, TextTable
from bot.services.market.document import MarketDocument, MarketOption


def market_table(found: MarketDocument) -> TextReport:
    """Return the market table: ranked offers, price ages, clouds that did not answer, and what was left out and why."""
    head = ("#", "offer", "GPU", "region", "per hour", f"for {hours(found.hours)}", "why")
    answered = f"{found.answered:,} offer{'' if found.answered == 1 else 's'} answered."
    absent = [one.sentence for one in found.clouds if not one.ok]
    sentences = (*found.ages, *absent, *(one.sentence for one in found.excluded))
    if not found.options:
        return TextReport(sentences=("No offer fits now.", *sentences))
    table = TextTable(head=head, rows=tuple(_market_row(one) for one in found.options))
    return TextReport(tables=(table,), sentences=(answered, *sentences))


def _market_row(one: MarketOption) -> tuple[str, ...]:
    gpus = f"{one.gpu_count}x {one.gpu}{' spot' if one.spot else ''}"
    price = "-" if one.price_usd_h is None else rate(one.price_usd_h)
    why = f"{one.why} Expected: {one.parts}." if one.parts else one.why
    return str(one.rank), one.offer_id, gpus, one.region, price, usd(one.expected_usd), why
