"""Pin listings of the market, so that the pages of one reader all come from the same moment.

Every reader with the same question shares one immutable listing, and a cursor holds nothing but its name. Memory is
bounded by the number of offers in all listings together: the oldest ones go first, and their cursors expire with them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ledger.kernel.clock import Clock

#: For so many seconds after its first page was read a listing can be paged through.
PINNED_S = 600.0
#: All pinned listings together hold no more offers than this, about 200 MB; the newest listing is always kept.
MOST_OFFERS = 100_000
#: And no more listings than this, since an empty one takes memory, too.
MOST_LISTINGS = 500

Question = TypeVar("Question", bound=Hashable)
Kept = TypeVar("Kept")


@dataclass(slots=True)
class _Pin(Generic[Kept]):
    version: object
    listing: Kept
    offers: int
    until_s: float


class Snapshots(Generic[Question, Kept]):
    """Keep listings by name, and the newest one of each question."""

    def __init__(self, clock: Clock, most_offers: int = MOST_OFFERS, most_listings: int = MOST_LISTINGS) -> None:
        self._clock = clock
        self._most_offers = most_offers
        self._most_listings = most_listings
        self._pins: OrderedDict[str, _Pin[Kept]] = OrderedDict()
        self._newest: dict[Question, str] = {}

    def __len__(self) -> int:
        """Return how many listings are held."""
        return len(self._pins)

    def newest(self, question: Question, version: object) -> Kept | None:
        """Return the listing of a question if nothing has changed since; it is pinned for the whole time again."""
        name = self._newest.get(question)
        pin = self._pins.get(name) if name is not None else None
        now_s = self._clock.monotonic()
        if name is None or pin is None or pin.version != version or pin.until_s <= now_s:
            return None
        pin.until_s = now_s + PINNED_S
        self._pins.move_to_end(name)
        return pin.listing

    def keep(self, question: Question, version: object, name: str, listing: Kept, offers: int) -> None:
        """Pin a new listing, and let go of expired ones and of as many old ones as the bounds demand."""
        now_s = self._clock.monotonic()
        self._pins[name] = _Pin(version, listing, offers, now_s + PINNED_S)
        self._newest[question] = name
        held = sum(pin.offers for pin in self._pins.values())
        for old in [*self._pins][:-1]:
            pin = self._pins[old]
            if pin.until_s > now_s and held <= self._most_offers and len(self._pins) <= self._most_listings:
                continue
            held -= pin.offers
            del self._pins[old]
        self._newest = {asked: one for asked, one in self._newest.items() if one in self._pins}

    def named(self, name: str) -> Kept | None:
        """Return a pinned listing; None where it expired, gave way to newer ones, or another process pinned it."""
        pin = self._pins.get(name)
        return None if pin is None or pin.until_s <= self._clock.monotonic() else pin.listing
