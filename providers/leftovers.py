"""What a create leaves behind besides its instance, such as an SSH key, and the methods that list and delete it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something in the account besides instances. `name` carries our machine label at its right end when it is ours.

    `what` says in words what it is, such as SSH key. It costs nothing and nothing is lost with it.
    """

    cloud: str
    ref: str
    name: str
    what: str


@runtime_checkable
class Leaves(Protocol):
    """The extra methods of a provider whose creates leave something behind that does not end with the instance.

    What an adapter makes besides instances, it names by the grant's label and tells here; the others lack this part.
    """

    async def leftovers(self) -> tuple[Leftover, ...]:
        """Everything of that kind in the account, no matter who made it; an error rather than a part of it."""

    async def remove(self, leftover: Leftover) -> None:
        """Delete one leftover. Idempotent: already gone is success, not an error. Running instances are not touched."""
