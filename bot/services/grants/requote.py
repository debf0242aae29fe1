"""Quote a running instance at its current cost, as the one option of a request about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from bot.rules.market.estimate import Estimate
from bot.rules.market.node_sets import as_set
from bot.services.market.codec import estimate_to_json, offer_from_json, offer_to_json
from bot.services.notifications.request_message import show_details
from ledger.core import Tx
from ledger.kernel.ids import new_id, url_token
from ledger.models import Instance, Option, Quote, Request, Token


async def offer_again(
    tx: Tx,
    asked: Request,
    row: Instance,
    costs: Estimate,
    why: str,
    now: datetime,
    *,
    nodes: int = 1,
    price_usd_h: Decimal | None = None,
) -> None:
    """Quote `row` as the only option of the request `asked`, with buttons to approve or reject.

    With more `nodes` it stands for all machines of its set, which cost `price_usd_h` together.
    """
    price_usd_h = row.price_usd_h if price_usd_h is None or nodes == 1 else price_usd_h
    offer = replace(as_set(offer_from_json(row.offer), nodes), price_usd_h=price_usd_h, fetched_at=now)
    quote = Quote(id=new_id("quo", now), request_id=asked.id, version=1, created_at=now, expires_at=asked.expires_at)
    tx.add(quote)
    await tx.flush()
    option = Option(
        id=new_id("opt", now),
        quote_id=quote.id,
        rank=1,
        cloud=row.cloud,
        offer_key=offer.key,
        price_usd_h=price_usd_h,
        best_usd=costs.best_usd,
        expected_usd=costs.expected_usd,
        worst_usd=costs.worst_usd,
        why=why,
        offer=offer_to_json(offer),
        estimate=estimate_to_json(costs),
    )
    tx.add(option)
    for action, option_id in (("approve", option.id), ("reject", None)):
        token = url_token()
        tx.add(Token(token=token, request_id=asked.id, quote_version=1, action=action, option_id=option_id))
    await tx.flush()
    await show_details(tx, asked, now)
