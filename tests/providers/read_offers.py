"""Read all that a cloud sells for a question, call by call, as the market does."""

from __future__ import annotations

from providers.completeness import COMPLETE, AnswerPart, ProofOfWhole
from providers.contract import Offer, Provider
from providers.gpus.constraint import GpuConstraint

#: What a test says about a market that it made up: these are all offers.
WHOLE = ProofOfWhole(COMPLETE)


async def every_offer(
    provider: Provider, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, calls: int = 40
) -> AnswerPart[Offer]:
    """The answers of at most so many calls as one: each offer once, as complete as the last answer says."""
    answer = await provider.offers(constraint, disk_gb=disk_gb, spot=spot)
    found = {(offer.key, offer.spot): offer for offer in answer}
    for _ in range(calls - 1):
        if answer.rest is None:
            break
        answer = await provider.offers(constraint, disk_gb=disk_gb, spot=spot, rest=answer.rest)
        found = {**{(offer.key, offer.spot): offer for offer in answer}, **found}
    return AnswerPart(tuple(found.values()), answer.completeness, answer.rest)
