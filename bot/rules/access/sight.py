"""Say how much of a request and its session somebody sees. Every function that shows one takes this value."""

from __future__ import annotations

from enum import StrEnum


class Sight(StrEnum):
    """How much of a request and its session somebody sees."""

    #: Its owner and the people with whom it is shared: everything, and how to connect.
    OWN = "own"
    #: Approvers and administrators: everything but how to connect.
    ALL = "all"
    #: Somebody to whom it is offered, or a colleague: GPUs, cloud, price, end, costs and people. Not what runs, nor
    #: where it is saved.
    FACTS = "facts"

    @property
    def connects(self) -> bool:
        """Whether they read how to connect."""
        return self is Sight.OWN

    @property
    def shows_work(self) -> bool:
        """Whether they read what runs, where it is saved, and what the machine says about it."""
        return self is not Sight.FACTS
