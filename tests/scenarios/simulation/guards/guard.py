"""What a guard of a law is: the edits that remove it, and what notices that it is missing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Law(StrEnum):
    """The laws of docs/architecture.md, in a few words each."""

    ONE_CREATE = "one row, one create"
    GONE = "gone means proved"
    DECISION = "no spend without a decision"
    ORPHANS = "what has our label is never forgotten, and what has not is never touched"
    CLOCK = "a wrong clock spends nothing"
    ANNOUNCED = "nothing ends unannounced"
    BOOKED = "the ledger is the bill"
    PRICE = "no running instance ends by its price alone"
    NETWORK = "no network call in a transaction"
    WITHOUT_LEDGER = "ends need no writable ledger"
    RECORD = "no record is lost or changed"
    WORK = "a move never leaves fewer machines or copies"
    WHOLE = "no answer is taken for more than it is"
    LOSS = "cost and loss decide about unplanned ends"
    PEOPLE = "nobody is on a machine who isn't on its session"
    SIGHT = "nobody reads more than their part of a session"
    OLDER = "an older ledger buys nothing twice and ends nothing early"
    RATE = "nobody's requests bury the others"
    DATA = "data are not deleted by bookkeeping"


@dataclass(frozen=True, slots=True)
class Edit:
    """In `module`, `before` (which occurs once) becomes `after`."""

    module: str
    before: str
    after: str

    def made_in(self, text: str) -> str:
        """Return the module's text with this edit. ValueError unless `before` occurs in it once."""
        if text.count(self.before) != 1:
            raise ValueError(f"{self.module} has {text.count(self.before)} times: {self.before!r}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard, with its proof: a `seed` that notices its absence, or a `test` that fails without it."""

    name: str
    law: Law
    edits: tuple[Edit, ...]
    seed: int | None = None
    test: str = ""
