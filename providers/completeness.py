"""Say how complete an answer is: a value that goes with the answer, as a `ProofOfEnd` goes with an end.

Who reads a market, a listing, a checkpoint or an instance says how much of it was read. What is said about the whole,
such as *cheapest*, *none* or *gone*, takes a `ProofOfWhole`, and only a complete answer has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Generic, TypeVar, overload

from pydantic import Field

#: Where the next read begins. Only the adapter that made the answer reads it; None: nothing follows.
Rest = Mapping[str, str] | None
Item_co = TypeVar("Item_co", covariant=True)


class Extent(StrEnum):
    """How much of the truth an answer holds."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    STALE = "stale"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Completeness:
    """Say how complete an answer is: `complete`, `partial(why)`, `stale(since)` or `unknown(why)`.

    `why` is one sentence for people about what is missing. `since` is when a stale answer was true.
    """

    extent: Annotated[Extent, Field(description="complete, partial, stale or unknown.")]
    why: Annotated[str, Field(description="What is missing, in one sentence; empty where nothing is.")] = ""
    since: Annotated[datetime | None, Field(description="When a stale answer was true; else null.")] = None

    def __post_init__(self) -> None:
        """Refuse what means nothing: a part without a reason, or an age without a time."""
        if self.extent is Extent.PARTIAL and not self.why:
            raise ValueError("a partial answer says why: Completeness.partial('The second page was not read.')")
        if (self.extent is Extent.STALE) != (self.since is not None):
            raise ValueError("a stale answer, and no other, says since when: Completeness.stale(since)")
        if self.extent is Extent.COMPLETE and self.why:
            raise ValueError("a complete answer has no reason to be anything else")

    @classmethod
    def partial(cls, why: str) -> Completeness:
        """Return the completeness of an answer that lacks something, and why."""
        return cls(Extent.PARTIAL, why)

    @classmethod
    def stale(cls, since: datetime, why: str = "") -> Completeness:
        """Return the completeness of an answer that was complete at `since`, and may be wrong now."""
        return cls(Extent.STALE, why, since)

    @classmethod
    def unknown(cls, why: str = "") -> Completeness:
        """Return the completeness of no answer at all."""
        return cls(Extent.UNKNOWN, why)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return self.extent is Extent.COMPLETE

    @property
    def proof(self) -> ProofOfWhole | None:
        """Return the proof that nothing is missing; None where something is."""
        return ProofOfWhole(self) if self.is_complete else None

    def to_json(self) -> dict[str, str | None]:
        """Return the value as plain JSON types, as documents and rows hold it."""
        return {
            "extent": self.extent.value,
            "why": self.why,
            "since": None if self.since is None else self.since.isoformat(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, str | None] | None) -> Completeness:
        """Return the value of such JSON. Rows of releases that stored none are unknown."""
        if not data:
            return UNKNOWN
        since = data.get("since")
        at = None if since is None else datetime.fromisoformat(since)
        return cls(Extent(data["extent"] or ""), data.get("why") or "", at)


COMPLETE = Completeness(Extent.COMPLETE)
UNKNOWN = Completeness(Extent.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ProofOfWhole:
    """Prove that an answer is complete. What is said about the whole takes one; `Completeness.proof` makes it."""

    of: Completeness

    def __post_init__(self) -> None:
        """Refuse a proof for anything but a complete answer."""
        if not self.of.is_complete:
            raise ValueError("only a complete answer proves anything about the whole")


def of_all(parts: Mapping[str, Completeness]) -> Completeness:
    """Return how complete an answer is that was put together from these named parts.

    It is complete where each part is, and unknown where no part is known. Reasons come in the order of the parts; a
    part without a reason is named. Nothing at all is complete: nothing is missing.
    """
    lacking = {name: part for name, part in parts.items() if not part.is_complete}
    if not lacking:
        return COMPLETE
    why = " ".join(dict.fromkeys(part.why or _missing(name, part) for name, part in lacking.items()))
    if all(part.extent is Extent.UNKNOWN for part in parts.values()):
        return Completeness.unknown(why)
    times = [part.since for part in lacking.values() if part.since is not None]
    if len(times) == len(lacking):
        return Completeness.stale(min(times), why)
    return Completeness.partial(why)


def _missing(name: str, part: Completeness) -> str:
    return f"{name}: the answer is old." if part.extent is Extent.STALE else f"{name}: no answer."


@dataclass(frozen=True, slots=True)
class AnswerPart(Sequence[Item_co], Generic[Item_co]):
    """Hold what one read returned, and how complete it is.

    `rest` says where the read can go on.
    """

    items: tuple[Item_co, ...] = ()
    completeness: Completeness = COMPLETE
    rest: Rest = None

    def __post_init__(self) -> None:
        """Refuse a complete answer with a rest."""
        if self.rest is not None and self.completeness.is_complete:
            raise ValueError("an answer with a rest is not complete")

    def __len__(self) -> int:
        """Count what was returned."""
        return len(self.items)

    @overload
    def __getitem__(self, at: int) -> Item_co: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Item_co, ...]: ...

    def __getitem__(self, at: int | slice) -> Item_co | tuple[Item_co, ...]:
        """Return one item, or several."""
        return self.items[at]
