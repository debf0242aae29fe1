"""Make the rows of a quote: what was left out, how each cloud answered, the options and their buttons."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.rules.market.ranking import Ranked, RankedOption
from bot.services.market.answers import CloudAnswer, silence
from bot.services.market.catalog import MarketAnswer
from bot.services.market.codec import estimate_to_json, offer_to_json
from ledger.kernel.ids import new_id, url_token
from ledger.models import Option, Quote, Token
from providers.completeness import COMPLETE

#: The code beside the sentence about a cheaper offer that cannot run what was asked.
CHEAPER_REFUSED = "cheaper"


def quote_of(
    request_id: str, version: int, ranked: Ranked, market: MarketAnswer, now: datetime, open_s: float
) -> Quote:
    return Quote(
        id=new_id("quo", now),
        request_id=request_id,
        version=version,
        created_at=now,
        expires_at=now + timedelta(seconds=open_s),
        excluded=[
            *([{"code": CHEAPER_REFUSED, "sentence": ranked.refused, "count": 1}] if ranked.refused else []),
            *({"code": e.reason_code, "sentence": e.sentence, "count": e.count} for e in ranked.excluded),
        ],
        clouds=_answers(market.answers),
    )


def buttons_of(request_id: str, version: int, options: list[Option]) -> list[Token]:
    """Create one Approve per option and one Reject; each token is an opaque value for this version alone."""
    actions: list[tuple[str, str | None]] = [("approve", option.id) for option in options]
    return [
        Token(
            token=url_token(),
            request_id=request_id,
            quote_version=version,
            action=action,
            option_id=option_id,
        )
        for action, option_id in [*actions, ("reject", None)]
    ]


def _answers(answers: Sequence[CloudAnswer]) -> list[dict[str, object]]:
    """Return how each cloud answered; the first silent one has the sentence about all that are silent."""
    first = next((one.cloud for one in answers if one.silent), "")
    return [
        {
            "cloud": one.cloud,
            "ok": one.ok,
            "count": one.count,
            "at": one.at.isoformat(),
            "sentence": (silence(answers) if one.cloud == first else "") if one.silent else _said(one),
            "copied_at": None if one.copied_at is None else one.copied_at.isoformat(),
            "refused": one.refused,
            "completeness": one.completeness.to_json() if one.set_up else COMPLETE.to_json(),
        }
        for one in answers
    ]


def _said(answer: CloudAnswer) -> str:
    """Return the sentence about a cloud that answered: why it gave no offers, or which it did not give."""
    return answer.sentence or (answer.completeness.why if answer.ok else "")


def option_of(quote_id: str, place: int, option: RankedOption, now: datetime) -> Option:
    price = option.offer.price_usd_h
    if price is None:
        raise ValueError(f"{option.offer.id} was ranked without a price")
    return Option(
        id=new_id("opt", now),
        quote_id=quote_id,
        rank=place,
        cloud=option.offer.cloud,
        offer_key=option.offer.key,
        price_usd_h=price,
        best_usd=option.estimate.best_usd,
        expected_usd=option.estimate.expected_usd,
        worst_usd=option.estimate.worst_usd,
        marks=list(option.marks),
        why=option.why,
        offer=offer_to_json(option.offer),
        estimate=estimate_to_json(option.estimate),
    )
